/** A wait that other code can end. A wake before the wait ends it at once. */
export class Wakeup {
  #woken = false;
  #end: (() => void) | undefined;

  wake(): void {
    this.#woken = true;
    this.#end?.();
  }

  async wait(milliseconds: number): Promise<void> {
    if (!this.#woken && milliseconds > 0) {
      await new Promise<void>((resolve) => {
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
