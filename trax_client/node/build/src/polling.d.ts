export declare class Polling {
    #private;
    constructor(interval: number, now: number);
    get nextClaim(): number;
    /** A new connection: the notifications of the old one say nothing about it. */
    connected(): void;
    /** When one job wakes many workers all but one claim in vain; next time those claim a little later. */
    notified(now: number): void;
    wake(at: number): void;
    /** A claim is being sent, with outcomes or alone. */
    sent(withOutcomes: boolean): void;
    /** A claim of `wanted` jobs returned `got`. */
    claimed(wanted: number, got: number, now: number): void;
}
