/** A statement and its parameters. */
export interface Statement {
    text: string;
    values: unknown[];
}
/** The type and the value of an argument; undefined leaves it out. */
export type Argument = [type: string, value: unknown];
/** Returns the call of a function with one result, which is named `result`. */
export declare const value: (name: string, named: Record<string, Argument>, lockTimeout?: number) => Statement;
/** What a claim asks for. */
export interface Claim {
    worker: string;
    maxJobs: number;
    tasks: string[];
    groups: string[] | undefined;
    lease: string;
}
/** Completions of one call, in three arrays of the same length. */
export interface Completions {
    jobIds: number[];
    tokens: string[];
    outputs: (string | null)[];
}
export declare const claimNext: (claim: Claim, lockTimeout: number) => Statement;
export declare const completeMany: (done: Completions, lockTimeout: number) => Statement;
export declare const completeAndClaim: (done: Completions, claim: Claim, lockTimeout: number) => Statement;
export declare const heartbeat: (jobIds: number[], tokens: string[], lease: string) => Statement;
export declare const enqueueMany: (named: Record<string, Argument>) => Statement;
export declare const getJobs: (jobIds: number[]) => Statement;
export declare const waitingTasks: (groups: string[] | undefined) => Statement;
export declare const awaitJob: (jobId: number, timeout: string) => Statement;
export declare const version: Statement;
