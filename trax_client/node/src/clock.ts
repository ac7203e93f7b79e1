import { uptime } from "node:os";

/** Returns milliseconds of a monotonic clock that all threads share and that advances during suspend: the uptime
 * includes suspend, `hrtime` does not. The uptime is coarse, so a small difference is ignored. */
export function now(): number {
  const awake = Number(process.hrtime.bigint() / 1000n) / 1000;
  const up = uptime() * 1000;
  return up - awake > 2000 ? up : awake;
}
