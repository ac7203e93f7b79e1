import type { HostConfig } from "./address.js";
import type { Statement } from "./sql.js";
/** A row of an answer. Who names a column knows its type. */
export type Row = Record<string, any>;
/** How a connection is opened. */
export interface Opening {
    hosts: HostConfig[];
    applicationName: string;
    /** How long connecting, and every call, may take, in milliseconds. */
    connectLimit: number;
    limit: number;
    /** The channel to listen on, and who hears its notifications. */
    channel: string;
    onNotification: (payload: string) => void;
    /** The connection is gone, and not by `close`. */
    onEnd: () => void;
}
/** A connection of a worker: its calls follow one another, and each has a time limit. */
export declare class Connection {
    #private;
    /** The server said that it ends the session, and not as the answer to a call. */
    wasEnded: boolean;
    private constructor();
    /** Connects to the first host that answers and accepts writes; all are tried at once. */
    static open(opening: Opening): Promise<Connection>;
    get isClosed(): boolean;
    /** Returns the rows of an answer. After an error of the connection it is closed. */
    query({ text, values }: Statement): Promise<Row[]>;
    /** Says good-bye to the server if that is done in a second. */
    close(): Promise<void>;
    destroy(): void;
}
/** Exponential backoff with full jitter; its longest delay is the time in which a server that is back is found. */
export declare class Backoff {
    #private;
    constructor(cap?: number);
    next(): number;
    reset(): void;
}
