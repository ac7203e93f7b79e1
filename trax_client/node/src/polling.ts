// When to claim: with outcomes, at a notification, or when an empty queue is polled again.

/** After this long without a job polling slows down, in milliseconds. */
const LONG_IDLE = 5000;
/** How long a claim that returned fewer jobs than wanted waits for an outcome to go with the next. */
const PARTIAL_DELAY = 10;
/** The most poll intervals between two polls without notifications; the least and the most with them. */
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
  /** How many notifications came on this connection since one was last missing, and how many it takes to rely on them. */
  #heard = 0;
  #needed = 1;
  /** How many claims in a row followed a notification and returned nothing. */
  #vain = 0;

  constructor(interval: number, now: number) {
    this.#interval = interval;
    this.#idleSince = this.#pollAt = now;
  }

  get nextClaim(): number {
    return Math.min(this.#wakeAt, this.#pollAt);
  }

  /** A new connection: the notifications of the old one say nothing about it. */
  connected(): void {
    this.#heard = 0;
    this.#intervals = Math.min(this.#intervals, MOST);
  }

  /** When one job wakes many workers all but one claim in vain; next time those claim a little later. */
  notified(now: number): void {
    this.#heard += 1;
    this.wake(now + (this.#vain === 0 ? 0 : Math.random() * 2 ** Math.min(this.#vain, 6)));
  }

  wake(at: number): void {
    this.#wakeAt = Math.min(this.#wakeAt, at);
  }

  /** A claim is being sent, with outcomes or alone. */
  sent(withOutcomes: boolean): void {
    this.#cause = this.#wakeAt < Infinity ? "wake" : withOutcomes || this.#more ? "more" : "poll";
    this.#wakeAt = Infinity;
  }

  /** A claim of `wanted` jobs returned `got`. */
  claimed(wanted: number, got: number, now: number): void {
    this.#more = got > 0;
    const relies = this.#heard >= this.#needed;
    if (got > 0) {
      if (relies && this.#cause === "poll" && this.#wakeAt === Infinity) {
        // A notification is late, or they do not arrive.
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
    // A fleet that started together drifts apart.
    else this.#pollAt = now + this.#interval * this.#intervals * (0.9 + 0.2 * Math.random());
  }
}
