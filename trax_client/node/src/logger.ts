/** A logger for a worker's messages; `console`, pino and winston fit. */
export interface Logger {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

/** The default: warnings and errors go to standard error, other messages are dropped. */
export const quiet: Logger = {
  info: () => undefined,
  warn: (message) => console.error(`trax: ${message}`),
  error: (message) => console.error(`trax: ${message}`),
};
