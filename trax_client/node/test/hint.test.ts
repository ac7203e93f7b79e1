// Hints of the server as a program in JavaScript reads them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { inJavaScript } from "../src/hint.js";
import { type ServerError } from "../src/errors.js";
import { database } from "./database.js";

const { client } = await database();

test("a hint names the options and methods of this package", () => {
  const hints: Record<string, string> = {
    "Specify a number from 0 to 31: priority => 0": "Specify a number from 0 to 31: priority: 0",
    "Specify an interval, for example: timeout => interval '30 s'": "Specify an interval, for example: timeout: '30 s'",
    "Specify a name of 1 to 255 bytes: group_name => 'report.build'": "Specify a name of 1 to 255 bytes: groupName: 'report.build'",
    "Name at least one: groups => array['mail.send', 'a']; or leave groups out": "Name at least one: groups: ['mail.send', 'a']; or leave groups out",
    "Name the key: unique_key => 'report 7', unique_for => '1 hour'": "Name the key: uniqueKey: 'report 7', uniqueFor: '1 hour'",
    "Specify a value: inputs => ...": "Specify a value: inputs: ...",
    "Specify a time: run_at => now() + interval '5 min'": "Specify a time: runAt: new Date(Date.now() + 5 * 60_000)",
    "Specify a time: until => now() + interval '3 days'": "Specify a time: until: new Date(Date.now() + 3 * 86_400_000)",
    "Specify a time: after => now()": "Specify a time: after: new Date()",
    "For example: undo => '{\"task\": \"card.refund\"}'": "For example: undo: {\"task\": \"card.refund\"}",
    "close_rate => true, retry_in => '30 s'": "closeRate: true, retryIn: '30 s'",
    "rate => '...'; or leave out close_rate.": "rate: '...'; or leave out closeRate.",
    "In a job: select trax.spawn(job_id, token, step, task, input, batch => 7)": "In a job: ctx.spawn(step, task, input, { batch: 7 })",
    "Or end it: select trax.cancel(7)": "Or end it: cancel(7)",
    "Fork: select trax.fork(7, from_step => 'a, b')": "Fork: fork(7, { fromStep: 'a, b' })",
    "Commit first, then type: call trax.await_job(7, '1 min', null, null, null)": "Commit first, then type: awaitJob(7, '1 min')",
    "Give a key: trax.enqueue(task, input, unique_key => ...)": "Give a key: enqueue(task, input, { uniqueKey: ... })",
    "Enqueue it: select trax.enqueue(task, rate => '...'); or": "Enqueue it: enqueue(task, input, { rate: '...' }); or",
    "Queue a statement with: select trax.enqueue_sql('...'); or give the task another name.":
      "Queue a statement with: enqueueSql('...'); or give the task another name.",
    "Name the role: select trax.enqueue_sql('call rollup()', run_as => 'reporter')":
      "Name the role: enqueueSql('call rollup()', { runAs: 'reporter' })",
    "Commit first, then type: call trax.await_jobs(array[7, 8], '1 min', null)": "Commit first, then type: awaitJobs([7, 8], '1 min')",
    "select trax.cancel(7); select trax.open_batch('...')": "cancel(7); openBatch('...')",
  };
  for (const [hint, expected] of Object.entries(hints)) assert.equal(inJavaScript(hint), expected);
});

test("other text in a hint stays as it is", () => {
  for (const hint of [
    "Name a role: trax.grant_access(role => 'app', level => 'worker')",
    "Raise the burst: select trax.configure_rate('api', ..., burst => 7)",
    "Get ids with: select trax.enqueue(task, input) from ...",
    "List its steps: select step, kind from trax.read_steps(7)",
    "Type: create extension trax; select trax.set_shard(1)",
    "Specify the id that trax.enqueue returned.",
    "trax.enqueue(task",
    "",
  ]) assert.equal(inJavaScript(hint), hint);
});

test("the hint of an error of the server is in JavaScript", async () => {
  await assert.rejects(client.enqueue("a", {}, { uniqueFor: "1 hour" }), (error: ServerError) => {
    assert.equal(error.hint, "Name the key, for example: uniqueKey: 'report 7', uniqueFor: '1 hour'");
    return error.message.endsWith(`HINT: ${error.hint}`);
  });
});
