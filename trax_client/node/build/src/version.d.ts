/** The version of this package; a test compares it with package.json. */
export declare const version = "0.1.0";
