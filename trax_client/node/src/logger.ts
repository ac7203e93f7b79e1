/** Where a worker says what it does; `console` is one, and so are pino and winston. */
export interface Logger {
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

/** The default: trouble goes to standard error, nothing else is said. */
export const quiet: Logger = {
  info: () => undefined,
  warn: (message) => console.error(`trax: ${message}`),
  error: (message) => console.error(`trax: ${message}`),
};
