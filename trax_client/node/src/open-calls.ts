// The calls of a context that its handler has not awaited, as after a forgotten `await`.

/** The promise of a call. A rejection ends no process; until it is awaited, the call is open. */
class Call<T> extends Promise<T> {
  isAwaited = false;
  isRejected = false;

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

  /** Runs a call. Its promise never settles once the attempt is over: nothing of the handler follows. */
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
    Promise.prototype.then.call(call, undefined, () => (call.isRejected = true));
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
    const open = [...this.#open].filter(([call]) => !(call.isRejected && call.isAwaited)).map(([, name]) => name);
    return open.length === 0 ? undefined : open.slice(0, 5).join(", ");
  }
}
