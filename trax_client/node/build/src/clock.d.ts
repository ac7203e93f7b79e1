/** Milliseconds of a clock that never goes back and also runs while the machine sleeps: the machine's uptime
 * counts its sleep, `performance.now` does not. The uptime is coarse, so small differences are none. */
export declare function now(): number;
