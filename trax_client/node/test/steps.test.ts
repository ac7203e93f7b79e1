import assert from "node:assert/strict";
import { type AddressInfo, connect, createServer } from "node:net";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { type Context, RECORDED, Stopped, TimedOutError, UsageError, type WorkerOptions } from "../src/index.js";
import { database, during, eventually } from "./database.js";

const it = await database();
const { client, value } = it;

type Handler = (input: any, ctx: Context) => unknown;

let tasks = 0;

/** Runs a worker with a handler for a task of its own while the test runs. */
async function handled(handler: Handler, run: (task: string) => Promise<void>, options: WorkerOptions = {}): Promise<void> {
  const task = `steps.${(tasks += 1)}`;
  await during(it.worker(options).task(task, handler), () => run(task));
}

const ended = async (job: number): Promise<unknown> => {
  await eventually("its end", async () => ["completed", "failed", "cancelled"].includes((await client.job(job))?.state ?? ""));
  const { state, output, error } = (await client.job(job)) ?? {};
  return state === "completed" ? output : `${state}: ${error}`;
};

const suspended = (job: number, step: string): Promise<void> =>
  eventually(`suspended in ${step}`, async () => {
    const open = (await client.readSteps(job)).filter(({ recordedAt }) => recordedAt === undefined).map((one) => one.step);
    return (await client.job(job))?.state === "queued" && open.join() === step ? true : open;
  });

test("a step runs once and later attempts get its result", async () => {
  const ran: string[] = [];
  const work = <T>(name: string, result: T): (() => T) => () => (ran.push(name), result);
  await handled(
    async (_input, ctx) => {
      const first = await ctx.step("charge", work("1", { cents: 7 }));
      const second = await ctx.step("charge", async () => work("2", [1, null])());
      const nothing = await ctx.step("nothing", work("3", undefined));
      if (ctx.attempt === 1) throw new Error("once");
      return [first, second, nothing === undefined, await ctx.step("last", work("4", "end"))];
    },
    async (task) => {
      const job = await client.enqueue(task, {}, { maxRetries: 1, retryDelayMs: 0 });
      assert.deepEqual(await ended(job), [{ cents: 7 }, [1, null], true, "end"]);
      assert.deepEqual(ran, ["1", "2", "3", "4"]);
      const steps = (await client.readSteps(job)).map(({ step, kind, output, attempt }) => [step, kind, output, attempt]);
      assert.deepEqual(steps, [
        ["charge", "step", { cents: 7 }, 1],
        ["charge#2", "step", [1, null], 1],
        ["nothing", "step", undefined, 1],
        ["last", "step", "end", 2],
      ]);
    },
  );
});

test("a step that failed and is tried again keeps its name", async () => {
  let tries = 0;
  const charge = (): string => {
    tries += 1;
    if (tries === 1) throw new Error("the card is busy");
    return "charged";
  };
  await handled(
    async (_input, ctx) => {
      await ctx.step("charge", charge).catch(() => ctx.step("charge", charge));
      if (ctx.attempt === 1) throw new Error("once");
      return tries;
    },
    async (task) => {
      const job = await client.enqueue(task, {}, { maxRetries: 1, retryDelayMs: 0 });
      assert.equal(await ended(job), 2);
      assert.deepEqual((await client.readSteps(job)).map(({ step, attempt }) => [step, attempt]), [["charge", 1]]);
    },
  );
});

test("a suspended job occupies no place, and nothing of its handler goes on", async () => {
  const wentOn: string[] = [];
  await handled(
    async (input, ctx) => {
      if (input === "short") return input;
      try {
        await ctx.sleep("nap", new Date(Date.now() + 3_600_000));
      } catch {
        wentOn.push("catch");
      } finally {
        wentOn.push("finally");
      }
      return undefined;
    },
    async (task) => {
      const job = await client.enqueue(task, {});
      await suspended(job, "nap");
      assert.equal(await ended(await client.enqueue(task, "short")), "short");
      assert.equal(await client.cancel(job), "cancelled");
      const fork = await client.fork(job, { input: { forked: true } });
      await suspended(fork, "nap");
      assert.equal(await client.cancel(fork, { tree: false }), "cancelled");
      assert.deepEqual(wentOn, []);
    },
    { concurrency: 1 },
  );
});

test("waits end by time, signal and timeout", async () => {
  const attempts: number[] = [];
  await handled(
    async (_input, ctx) => {
      attempts.push(ctx.attempt);
      const seen: unknown[] = [await ctx.awaitSignal("go")];
      await ctx.sleep("nap", "300 ms");
      seen.push(await ctx.awaitSignal("go"));
      try {
        await ctx.awaitSignal("never", { timeoutMs: 300, step: "patience" });
      } catch (error) {
        assert.ok(error instanceof TimedOutError);
        seen.push(error.message);
      }
      return [...seen, await ctx.awaitSignal("end")];
    },
    async (task) => {
      const job = await client.enqueue(task, {}, { maxRetries: 0, runAt: new Date(Date.now() + 500) });
      assert.equal(await client.sendSignal(job, "go", { n: 1 }), "sent");
      assert.equal(await client.sendSignal(job, "go", { n: 2 }, { signalId: "second" }), "sent");
      assert.equal(await client.sendSignal(job, "go", { n: 3 }, { signalId: "second" }), "duplicate");
      await suspended(job, "end");
      await client.sendSignal(job, "end", { n: 4 });
      assert.deepEqual(await ended(job), [{ n: 1 }, { n: 2 }, 'no signal "never" was sent in time', { n: 4 }]);
      assert.deepEqual(attempts, [1, 1, 1, 1], "no attempt is spent");
      const steps = (await client.readSteps(job)).map(({ step }) => step);
      assert.deepEqual(steps, ["go", "nap", "go#2", "patience", "end"]);
      assert.equal(await client.sendSignal(job, "go"), "ended");
    },
  );
});

test("children are spawned once and awaited, and a cancel reaches them", async () => {
  await handled(
    async (input, ctx) => {
      if (input.child === 3) return ctx.awaitSignal("never");
      if (input.child !== undefined) return input.child;
      for (const child of input.children) await ctx.spawn("part", ctx.task, { child }, { priority: child });
      if (ctx.attempt === 1) throw new Error("once");
      return (await ctx.children()).map(({ step, state, output }) => [step, state, output]);
    },
    async (task) => {
      const options = { maxRetries: 1, retryDelayMs: 0 };
      const job = await client.enqueue(task, { children: [1, 2] }, options);
      assert.deepEqual(await ended(job), [["part", "completed", 1], ["part#2", "completed", 2]]);
      const parent = await client.enqueue(task, { children: [3] }, options);
      await suspended(parent, "children");
      const child = Number((await client.readSteps(parent)).find(({ kind }) => kind === "child")?.output);
      await suspended(child, "never");
      assert.equal(await client.cancel(parent), "cancelled");
      assert.match(String(await ended(child)), /^cancelled/);
    },
  );
});

test("a wait for children times out with those that there are", async () => {
  await handled(
    async (_input, ctx) => {
      await ctx.spawn("never", "test.nobody");
      try {
        return await ctx.children({ timeout: "200 ms" });
      } catch (error) {
        return error instanceof TimedOutError && error.children.map(({ state }) => state);
      }
    },
    async (task) => assert.deepEqual(await ended(await client.enqueue(task)), ["queued"]),
  );
});

test("a handler that goes on beside its suspension does no harm", async () => {
  let went = 0;
  await handled(
    async (_input, ctx) => {
      const payload = await Promise.race([ctx.awaitSignal("go"), pause(1000)]);
      if (payload !== undefined) return payload;
      went += 1;
      await ctx.step("more", () => (went += 1));
      return "swallowed";
    },
    async (task) => {
      const job = await client.enqueue(task, {}, { maxRetries: 0 });
      await eventually("its handler goes on", () => went === 1 || went === 2);
      await suspended(job, "go");
      await client.sendSignal(job, "go", 7);
      assert.equal(await ended(job), 7);
    },
  );
});

test("a step with a lost lease is not recorded, and stops its handler", async () => {
  const seen: unknown[] = [];
  await handled(
    async (_input, ctx) => {
      const attempt = seen.length;
      try {
        return await ctx.step("work", async () => {
          if (attempt === 0) await value("select trax.release(job_id, token) from trax.lease where job_id = $1", ctx.jobId);
          return `done ${attempt}`;
        });
      } catch (error) {
        seen.push([error instanceof Stopped, ctx.reason, ctx.signal.aborted]);
        throw error;
      }
    },
    async (task) => {
      assert.equal(await ended(await client.enqueue(task, {}, { maxRetries: 0 })), "done 1");
      assert.deepEqual(seen, [[true, "lease lost", true]]);
    },
    { concurrency: 1 },
  );
});

test("a step that is done when a cancel comes is recorded and undone", async () => {
  await handled(
    async (_input, ctx) => {
      const undo = { task: "steps.undo", input: { order: 7 } };
      const until = (): Promise<void> => eventually("the stop", () => ctx.signal.aborted);
      await ctx.step("charge", async () => (await until(), "charged"), { undo });
      await ctx.step("ship", () => "shipped");
    },
    async (task) => {
      const job = await client.enqueue(task);
      await eventually("it runs", async () => (await client.job(job))?.state === "in_progress");
      assert.equal(await client.cancel(job), "requested");
      assert.match(String(await ended(job)), /^cancelled/);
      const steps = (await client.readSteps(job)).map(({ step, output, undo }) => [step, output, undo]);
      assert.deepEqual(steps, [["charge", "charged", { task: "steps.undo", input: { order: 7 } }]]);
      assert.equal(await value("select count(*)::int from trax.work_queue where task = 'steps.undo'"), 1);
    },
  );
});

/** Runs jobs whose first attempt records steps, and returns the notes of the completions by a second handler. */
async function notes(
  steps: string[],
  inputs: string[],
  second: Handler,
  { check, ...options }: WorkerOptions & { check?: (jobs: number[], task: string) => Promise<void> } = {},
): Promise<unknown[]> {
  let all: unknown[] = [];
  await handled(
    async (input, ctx) => {
      if (ctx.attempt > 1) return second(input, ctx);
      for (const step of steps) await ctx.step(step, () => 1);
      throw new Error("once");
    },
    async (task) => {
      const jobs = await client.enqueueMany(task, inputs, { maxRetries: 1, retryDelayMs: 0 });
      assert.deepEqual(await Promise.all(jobs.map(ended)), inputs);
      all = await Promise.all(jobs.map((job) => value("select detail from trax.run where job_id = $1 and state = 'completed'", job)));
      await check?.(jobs, task);
    },
    options,
  );
  return all;
}

/** Completes the job itself if the input says so. */
const completing: Handler = async (input, ctx) => {
  if (!input.startsWith("own")) return input;
  assert.ok(await client.complete(ctx, input));
  return RECORDED;
};

test("recorded steps that newer code does not reach are logged, and a note of the run", async () => {
  const second: Handler = async (input, ctx) => {
    if (input === "some") await ctx.step("new", () => 2);
    if (input === "every") await Promise.all([ctx.step("b", () => 2), ctx.step("a", () => 2)]);
    return input;
  };
  const check = async (jobs: number[], task: string): Promise<void> => {
    const said = (text: string): boolean => it.said.some((one) => one.includes(text));
    await eventually("it is said", () => said(`${jobs[0]} (${task}) completed without its recorded steps "b", "a"`));
    await eventually("it is said", () => said(`${jobs[1]} (${task}) completed without its 2 recorded steps`));
  };
  const all = await notes(["b", "a"], ["some", "none", "every"], second, { check });
  const note = { unreached_steps: ["a", "b"] };
  assert.deepEqual(all, [note, note, null]);
  assert.deepEqual(await notes([], ["without steps"], (input) => input), [null]);
});

test("a handler that completes its job itself notes the steps that it has not reached", async () => {
  const second: Handler = async (input, ctx) => {
    if (input === "own, read") await ctx.step("new", () => 2);
    if (input === "own, reached") for (const step of ["a", "b"]) await client.recordStep(ctx, step);
    return completing(input, ctx);
  };
  const note = { unreached_steps: ["a", "b"] };
  assert.deepEqual(await notes(["b", "a"], ["own, read", "own, unread", "own, reached"], second), [note, note, null]);
});

test("a note has at most a hundred names, and one that the server would refuse is cut or left out", async () => {
  const names = Array.from({ length: 101 }, (_, n) => `step ${String(n).padStart(3, "0")}`);
  const cut = { unreached_steps: names.slice(0, 70) };
  assert.deepEqual(await notes(names.toReversed(), ["all", "own"], completing), [{ unreached_steps: names.slice(0, 100) }, cut]);
  const limit = (how: string): Promise<unknown> =>
    value(`do $$ begin execute format('alter database %I ${how}', current_database()); end $$`);
  await limit("set trax.max_input_bytes = 1024");
  assert.deepEqual(await notes(names.toReversed(), ["all", "own"], completing), [null, cut]);
  await limit("reset trax.max_input_bytes");
});

test("a completion whose steps cannot be read has no note", async () => {
  await value("alter function trax.read_steps rename to read_steps_later");
  try {
    assert.deepEqual(await notes(["a"], ["all", "own"], completing), [null, null]);
  } finally {
    await value("alter function trax.read_steps_later rename to read_steps");
  }
});

test("a completion is recorded without its note when the connection breaks each time that this is sent", async () => {
  let breaks = 0;
  const { hostname, port } = new URL(it.url);
  const proxy = createServer((from) => {
    const to = connect(Number(port), hostname);
    for (const socket of [from, to]) socket.on("error", () => undefined).on("close", () => (from.destroy(), to.destroy()));
    to.pipe(from);
    from.on("data", (sent) => {
      if (!sent.includes("unreached_steps")) return to.write(sent);
      breaks += 1;
      return from.destroy();
    });
  });
  await new Promise<void>((ready) => proxy.listen(0, "127.0.0.1", ready));
  const through = new URL(it.url);
  through.host = `127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  try {
    assert.deepEqual(await notes(["a"], ["all"], completing, { connection: through.href }), [null]);
    assert.equal(breaks, 5);
  } finally {
    proxy.close();
  }
});

test("a result that cannot be recorded fails the job for good, and so does a step of another kind", async () => {
  await handled(
    async (input, ctx) => {
      if (["signal", "sleep", "child", "jobs"].includes(input) && ctx.attempt === 1) {
        await ctx.step("go", () => 1);
        throw new Error("once");
      }
      if (input === "signal") return ctx.awaitSignal("go");
      if (input === "sleep") return ctx.sleep("go", "1 day");
      if (input === "child") return ctx.spawn("go", ctx.task);
      if (input === "jobs") return ctx.children({ name: "go" });
      return ctx.step("work", () => (input === "large" ? "x".repeat(2_000_000) : 7n));
    },
    async (task) => {
      const error = async (input: string, maxRetries: number): Promise<string> =>
        String(await ended(await client.enqueue(task, input, { maxRetries, retryDelayMs: 0 })));
      assert.match(await error("large", 5), /failed: the result of step "work" was refused: the output is too large/);
      assert.match(await error("bigint", 5), /failed: the result of step "work" cannot be recorded: result is a bigint/);
      for (const kind of ["signal", "sleep", "child", "jobs"]) {
        assert.match(await error(kind, 5), new RegExp(`failed: .* was recorded as step, not as ${kind}; give each`));
      }
    },
  );
});

test("a wrong name or undo is refused before the function runs", async () => {
  const ran: number[] = [];
  const long = "x".repeat(254);
  await handled(
    async ({ name, undo }, ctx) => {
      if (name === long) await ctx.step(name, () => 1);
      if (name === "nul") await ctx.step(name, () => ran.push(1), { undo: { task: "a", input: ["a\0b"] } });
      if (name === "surrogate") await ctx.step(name, () => ran.push(1), { undo: { task: "a", input: ["a\ud800b"] } });
      if (name === "fine") return ctx.step(name, () => "ran", { undo: { task: "a", input: "\\u0000 \u{1f600}" } });
      return ctx.step(name, () => ran.push(1), undo && { undo: { task: undo } });
    },
    async (task) => {
      const error = async (name: string, undo?: string): Promise<string> =>
        String(await ended(await client.enqueue(task, { name, undo }, { maxRetries: 0 })));
      assert.match(await error("charge "), /name is "charge "; write a name that neither is empty nor begins or ends/);
      assert.match(await error(""), /name is ""; write a name that neither is empty/);
      assert.match(await error("é".repeat(128)), /of 256 bytes; write at most 255/);
      assert.match(await error(long), /the numbered name is "x{40}..." of 256 bytes/);
      assert.match(await error("charge", " card.refund"), /the task of undo is " card.refund"; write a name/);
      assert.match(await error("charge", "x".repeat(256)), /the task of undo is "x{40}..." of 256 bytes/);
      assert.match(await error("nul"), /undo.input\[0\] has a NUL \(.0\), which PostgreSQL cannot store; leave it out/);
      assert.match(await error("surrogate"), /undo.input\[0\] has half of a surrogate pair, which PostgreSQL cannot store; leave it out/);
      assert.equal(await error("fine"), "ran");
      assert.deepEqual(ran, []);
    },
  );
});

test("a step that is done but cannot be recorded is undone", async () => {
  const ran: string[] = [];
  await handled(
    async ({ kind, undo }, ctx) => {
      const results: Record<string, unknown> = { large: "x".repeat(2_000_000), bigint: 7n, nul: "a\0b", undo: 7n };
      const input = kind === "undo" ? "x".repeat(2_000_000) : { kind };
      try {
        await ctx.step("work", () => (ran.push(kind), results[kind]), { undo: { task: undo, input } });
      } catch {
        // Its handler goes on, but the job has failed.
        await ctx.step("more", () => ran.push("more"));
      }
    },
    async (task) => {
      for (const kind of ["large", "bigint", "nul"]) {
        const job = await client.enqueue(task, { kind, undo: `${task}.undo` }, { maxRetries: 5 });
        const said = String(await ended(job));
        assert.match(said, /failed: step "work" is recorded without a result, and its undo job queued: the result of step/);
        const steps = (await client.readSteps(job)).map(({ step, output }) => [step, output]);
        assert.deepEqual(steps, [["work", undefined]]);
        const inputs = await value("select jsonb_agg(input) from trax.work_queue where task = $1 and parent_job_id = $2", `${task}.undo`, job);
        assert.deepEqual(inputs, [{ kind }]);
        await eventually("it is said", () => it.said.some((one) => one.startsWith(`job ${job} (${task}), attempt 1: step "work" is`)));
      }
      assert.deepEqual(ran, ["large", "bigint", "nul"]);
    },
  );
});

test("a refused undo is named in the error", async () => {
  await handled(
    (_input, ctx) => ctx.step("work", () => 7n as unknown, { undo: { task: "card.refund", input: "x".repeat(2_000_000) } }),
    async (task) => {
      const job = await client.enqueue(task, {}, { maxRetries: 5 });
      assert.match(String(await ended(job)), /failed: the result of step "work" cannot be recorded: .*its undo was refused, too: the undo is too large/);
    },
  );
});

test("RECORDED without a completion fails the attempt", async () => {
  await handled(
    async (completes, ctx) => {
      if (completes) await client.complete(ctx, "done");
      return RECORDED;
    },
    async (task) => {
      const jobs = await client.enqueueMany(task, [true, false], { maxRetries: 0 });
      assert.equal(await ended(jobs[0] as number), "done");
      assert.match(String(await ended(jobs[1] as number)), /failed: the handler returned RECORDED, but has not completed the job/);
      await eventually("it is said", () => it.said.some((one) => one.startsWith(`job ${jobs[1]}: the handler returned RECORDED`)));
    },
    { lease: "60 s" },
  );
});

test("a step is recorded in the transaction of the handler", async () => {
  await it.db.query("create table paid (cents int)");
  await handled(
    async (_input, ctx) => {
      const step = await client.recordStep(ctx, "pay", { paid: 3 });
      if (step?.recorded) await it.db.query("insert into paid values (3)");
      if (ctx.attempt === 1) throw new Error("once");
      return step;
    },
    async (task) => {
      const job = await client.enqueue(task, {}, { maxRetries: 1, retryDelayMs: 0 });
      assert.deepEqual(await ended(job), { recorded: false, output: { paid: 3 } });
      assert.equal(await value("select count(*)::int from paid"), 1);
      assert.ok(!it.said.some((one) => one.includes(`job ${job} `) && one.includes("completed without")));
    },
  );
});

test("steps survive the end of every connection", async () => {
  const ran: number[] = [];
  await handled(
    async (_input, ctx) => {
      const results: number[] = [];
      for (const n of [0, 1, 2, 3]) {
        const work = async (): Promise<number> => {
          ran.push(n);
          await value(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and query ~ 'record_step' and pid <> pg_backend_pid()",
          );
          return n;
        };
        results.push(await ctx.step("n", work));
      }
      return results;
    },
    async (task) => {
      assert.deepEqual(await ended(await client.enqueue(task, {}, { maxRetries: 0 })), [0, 1, 2, 3]);
      assert.deepEqual(ran, [0, 1, 2, 3]);
    },
  );
});

test("mistakes in the arguments of steps are refused before anything is done", async () => {
  const ran: string[] = [];
  const work = (): void => void ran.push("work");
  const calls: [(ctx: any) => unknown, RegExp][] = [
    [(ctx) => ctx.step(7, work), /name is a number; write step\("charge", charge\)/],
    [(ctx) => ctx.step("a"), /step "a" has no function/],
    [(ctx) => ctx.step("a", work, { undo: { tasks: "b" } }), /there is no option "tasks"; did you mean "task"\?/],
    [(ctx) => ctx.step("a", work, { undo: {} }), /the task of undo is undefined; write undo: \{ task/],
    [(ctx) => ctx.sleep("a", 90), /until is a number; write sleep\("pause", "3 days"\)/],
    [(ctx) => ctx.sleep("a", "-5 s"), /until is "-5 s"; write sleep\("pause", "3 days"\)/],
    [(ctx) => ctx.awaitSignal("a", { timeout: 90 }), /timeout is a number; write timeout: "90 s" or timeoutMs: 90000/],
    [(ctx) => ctx.awaitSignal("a", { until: "2030-01-01" }), /until has no time zone: write new Date/],
    [(ctx) => ctx.children({ until: "2030-01-01 09:00" }), /until has no time zone: write new Date/],
    [(ctx) => ctx.awaitSignal("a", { timeout: "90 s", until: new Date() }), /timeout and until are both given/],
    [(ctx) => ctx.children({ mode: "some" }), /mode is "some"; write one of: all, any/],
    [(ctx) => ctx.spawn("a", "b", {}, { prioriti: 7 }), /did you mean "priority"\?/],
  ];
  await handled(
    async (_input, ctx) => {
      for (const [call, said] of calls) {
        await assert.rejects(async () => call(ctx), (error: Error) => error instanceof UsageError && said.test(error.message), String(said));
      }
      return "all";
    },
    async (task) => assert.equal(await ended(await client.enqueue(task, {}, { maxRetries: 0 })), "all"),
  );
  assert.deepEqual(ran, []);
});
