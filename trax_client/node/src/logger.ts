/** A logger for a worker's messages; `console`, pino and winston fit. */
export interface Logger {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

const say = (message: string): void => console.error(`trax: ${message}`);

/** The default: all messages go to standard error. */
export const standardError: Logger = { info: say, warn: say, error: say };

/** The maximum number of names on a line. */
const SHOWN = 10;

/** Returns the first of some names on a line, without characters that steer a terminal. */
export function few(names: string[]): string {
  const shown = names.slice(0, SHOWN).join(", ").replace(/[\p{C}\p{Zl}\p{Zp}]/gu, "\u00b7");
  return names.length > SHOWN ? `${shown} and ${names.length - SHOWN} more` : shown;
}
