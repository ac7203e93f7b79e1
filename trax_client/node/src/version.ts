import { VersionError } from "./errors.js";

/** The version of this package, and the oldest extension version that has all functions it calls. */
export const version = "0.2.0";
const OLDEST = "0.1";

/** Refuses an extension that is too old. A newer one is accepted, as functions are only added to the contract. */
export function checkVersion(installed: string): void {
  const [major = 0, minor = 0] = installed.split(".").map(Number);
  const [oldestMajor = 0, oldestMinor = 0] = OLDEST.split(".").map(Number);
  if (major < oldestMajor || (major === oldestMajor && minor < oldestMinor)) {
    throw new VersionError(
      `the extension trax is ${installed}, and trax-worker ${version} needs ${OLDEST} or newer; type: alter extension trax update;`,
    );
  }
}
