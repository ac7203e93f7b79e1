// The time of the next claim: with outcomes, at a notification, or when an empty queue is polled again.

/** Polling slows down after this long without a job, in milliseconds. */
const LONG_IDLE = 5000;
/** How long to wait, after a claim that returned fewer jobs than wanted, for an outcome to send with the next. */
const PARTIAL_DELAY = 10;
/** The maximum number of poll intervals between polls without notifications; the minimum and maximum with them. */
const MOST = 5;
const NOTIFIED = [5, 25] as const;

export class Polling {
  readonly #interval: number;
  #intervals = 1;
  #idleSince: number;
  #pollAt: number;
  #wakeAt = Infinity;
  #cause: "wake" | "poll" | "more" = "more";
  #more = true;
  /**
   * The number of notifications on this connection since one was last missing, and the number required to rely on
   * them.
   */
  #heard = 0;
  #needed = 1;
  /** The number of consecutive claims that followed a notification and returned nothing. */
  #vain = 0;

  constructor(interval: number, now: number) {
    this.#interval = interval;
    this.#idleSince = this.#pollAt = now;
  }

  get nextClaim(): number {
    return Math.min(this.#wakeAt, this.#pollAt);
  }

  /** Records a new connection. Notifications of the old one prove nothing about the new one. */
  connected(): void {
    this.#heard = 0;
    this.#intervals = Math.min(this.#intervals, MOST);
  }

  /** If one job wakes many workers, all claims but one are in vain; those workers delay their next claim a little. */
  notified(now: number): void {
    this.#heard += 1;
    this.wake(now + (this.#vain === 0 ? 0 : Math.random() * 2 ** Math.min(this.#vain, 6)));
  }

  wake(at: number): void {
    this.#wakeAt = Math.min(this.#wakeAt, at);
  }

  /** Records that a claim is sent, with outcomes or alone. */
  sent(withOutcomes: boolean): void {
    this.#cause = this.#wakeAt < Infinity ? "wake" : withOutcomes || this.#more ? "more" : "poll";
    this.#wakeAt = Infinity;
  }

  /** Records that a claim of `wanted` jobs returned `got`. */
  claimed(wanted: number, got: number, now: number): void {
    this.#more = got > 0;
    const relies = this.#heard >= this.#needed;
    if (got > 0) {
      if (relies && this.#cause === "poll" && this.#wakeAt === Infinity) {
        // A notification is late, or none arrive.
        this.#heard = 0;
        this.#needed = Math.min(this.#needed * 2, 16);
      }
      this.#idleSince = now;
      this.#vain = 0;
      this.#intervals = 1;
    } else {
      if (this.#cause === "wake") this.#vain += 1;
      const [least, most] = NOTIFIED;
      if (relies) this.#intervals = Math.min(Math.max(this.#intervals * 2, least), most);
      else if (now - this.#idleSince > LONG_IDLE) this.#intervals = Math.min(this.#intervals + 1, MOST);
    }
    if (got >= wanted) this.#pollAt = now;
    else if (got > 0) this.#pollAt = now + PARTIAL_DELAY;
    // The factor spreads the polls of workers that were started together.
    else this.#pollAt = now + this.#interval * this.#intervals * (0.9 + 0.2 * Math.random());
  }
}
