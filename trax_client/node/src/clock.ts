import { performance } from "node:perf_hooks";
import { uptime } from "node:os";

const bootedBefore = (): number => uptime() * 1000 - performance.now();
const began = bootedBefore();

/** Milliseconds of a clock that never goes back and also runs while the machine sleeps: the machine's uptime
 * counts its sleep, `performance.now` does not. The uptime is coarse, so small differences are none. */
export function now(): number {
  const slept = bootedBefore() - began;
  return performance.now() + (slept > 2000 ? slept : 0);
}
