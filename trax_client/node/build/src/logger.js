/** The default: trouble goes to standard error, nothing else is said. */
export const quiet = {
    info: () => undefined,
    warn: (message) => console.error(`trax: ${message}`),
    error: (message) => console.error(`trax: ${message}`),
};
