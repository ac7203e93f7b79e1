import { uptime } from "node:os";

/** Milliseconds of a clock that never goes back, is one for all threads, and also runs while the machine sleeps: the
 * machine's uptime counts its sleep, `hrtime` does not. The uptime is coarse, so a small difference is none. */
export function now(): number {
  const awake = Number(process.hrtime.bigint() / 1000n) / 1000;
  const up = uptime() * 1000;
  return up - awake > 2000 ? up : awake;
}
