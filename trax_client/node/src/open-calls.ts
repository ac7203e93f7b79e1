// The calls of a context that its handler has not awaited to their end, as after a forgotten `await`.

/** The promise of a call. A rejection that the handler does not await ends no process: the call stays open. */
class Call<T> extends Promise<T> {
  isAwaited = false;

  /** The promises of `then`, `catch` and `finally` are plain. */
  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  override then<A = T, B = never>(
    onValue?: ((value: T) => A | PromiseLike<A>) | null, onError?: ((error: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    this.isAwaited = true;
    return super.then(onValue, onError);
  }
}

export class OpenCalls {
  readonly #open = new Map<Call<unknown>, string>();
  #isOver = false;

  /** Runs a call. Its promise never settles once the attempt is over, so that nothing of the handler goes on. */
  run<T>(method: string, name: unknown, work: () => Promise<T>): Promise<T> {
    const call = new Call<T>((resolve, reject) => {
      if (this.#isOver) return;
      work().then(
        (value) => {
          if (this.#isOver) return;
          this.#open.delete(call);
          resolve(value);
        },
        (error: unknown) => this.#isOver || reject(error),
      );
    });
    this.#open.set(call, `ctx.${method}(${typeof name === "string" ? JSON.stringify(name) : ""})`);
    Promise.prototype.then.call(call, undefined, () => call.isAwaited && this.#open.delete(call));
    return call;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Notes that the attempt is over. */
  end(): void {
    this.#isOver = true;
  }

  /** The calls whose end the handler has not awaited, or undefined if there are none. */
  get named(): string | undefined {
    return this.#open.size === 0 ? undefined : [...this.#open.values()].slice(0, 5).join(", ");
  }
}
