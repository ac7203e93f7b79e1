/** A wait that others can end. A wake that comes before the wait ends it at once. */
export class Wakeup {
    #woken = false;
    #end;
    wake() {
        this.#woken = true;
        this.#end?.();
    }
    async wait(milliseconds) {
        if (!this.#woken && milliseconds > 0) {
            await new Promise((resolve) => {
                const timer = setTimeout(resolve, Math.min(milliseconds, 2 ** 31 - 1));
                this.#end = () => {
                    clearTimeout(timer);
                    resolve();
                };
            });
        }
        this.#end = undefined;
        this.#woken = false;
    }
}
