// Runs the code blocks of docs/node.md and of the README as installed, each as the program that its first line names.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

import { checkVersion, version } from "../src/version.js";
import { database } from "./database.js";

const root = fileURLToPath(new URL("../../", import.meta.url));
const pages = ["../../docs/node.md", "README.md"].map((name) => readFileSync(join(root, name), "utf8")).join("\n");
const folder = mkdtempSync(join(tmpdir(), "trax-node-"));
after(() => rmSync(folder, { recursive: true }));
mkdirSync(join(folder, "node_modules"));
symlinkSync(root, join(folder, "node_modules/trax-worker"));
symlinkSync(join(root, "node_modules/pg"), join(folder, "node_modules/pg"));
for (const [, name, code] of pages.matchAll(/^```js\n\/\/ (\S+)\n(.*?)^```/gms)) {
  writeFileSync(join(folder, name ?? ""), code ?? "");
}

const it = await database();

/** Starts a program of the page. `end` resolves to the exit code and the output. */
function start(name: string): { kill: () => void; end: Promise<string> } {
  const child = spawn(process.execPath, [name], { cwd: folder, env: { ...process.env, DATABASE_URL: it.url, NODE_TEST_CONTEXT: "" } });
  let said = "";
  child.stdout.on("data", (piece) => (said += String(piece)));
  child.stderr.on("data", (piece) => (said += String(piece)));
  const end = new Promise<string>((resolve) => child.on("close", (code) => resolve(`${code}: ${said}`)));
  return { kill: () => void child.kill("SIGTERM"), end };
}

test("the worker and the producer of the page work, and the worker ends at SIGTERM", async () => {
  const worker = start("worker.mjs");
  assert.equal(await start("enqueue.mjs").end, "0: greeted ada\n");
  worker.kill();
  assert.match(await worker.end, /^0: trax: worker ".+" runs 20 jobs at once in database "node_.+", of the tasks hello\n$/);
});

test("the transactions of the page work", async () => {
  assert.match(await start("shop.mjs").end, /^0: trax: worker .*\n\[ \{ cents: '300' \} \]\n$/);
});

test("the job of the page that sleeps and waits for a signal works", async () => {
  const output = "{ click: { link: 'in the mail' }, letters: [ 'welcome', 'terms' ] }";
  const said = await start("signup.mjs").end;
  assert.ok(said.startsWith("0: trax: worker ") && said.endsWith(`\n${output}\n`), said);
});

test("the tests of the README pass", async () => {
  const said = await start("signup.test.mjs").end;
  assert.match(said, /^0: [^]* pass 2\n[^]* fail 0\n/);
});

test("the package has one version", () => {
  const { version: packaged } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
  assert.equal(version, packaged);
});

test("an extension that is too old is refused in words, and a newer one is not", () => {
  assert.throws(() => checkVersion("0.0.9"), /VersionError: the extension trax is 0.0.9.* type: alter extension trax update;/);
  checkVersion(version);
  checkVersion("7.0.0");
});
