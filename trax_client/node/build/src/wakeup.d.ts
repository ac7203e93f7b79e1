/** A wait that others can end. A wake that comes before the wait ends it at once. */
export declare class Wakeup {
    #private;
    wake(): void;
    wait(milliseconds: number): Promise<void>;
}
