import assert from "node:assert/strict";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { hosts } from "../src/address.js";
import { UsageError } from "../src/index.js";
import { encryptions } from "../src/tls.js";

const folder = mkdtempSync(join(tmpdir(), "trax-tls-"));
const root = join(folder, "root.pem");
writeFileSync(root, "a certificate");
const home = { HOME: folder };

/** Returns the ways in which the first host of an address is tried. */
function tried(query: string, env: Record<string, string> = {}): (boolean | object)[] {
  const [first] = hosts(`postgresql://a,b/shop${query}`, { ...home, ...env });
  return encryptions(first?.tls ?? {});
}

test("the modes are libpq's, and so is the default", () => {
  process.env["HOME"] = folder;
  const blind = { rejectUnauthorized: false };
  assert.deepEqual(tried(""), [blind, false]);
  assert.deepEqual(tried("?sslmode=disable"), [false]);
  assert.deepEqual(tried("?sslmode=allow"), [false, blind]);
  assert.deepEqual(tried("?sslmode=require"), [blind]);
  assert.deepEqual(tried("?ssl=true&application_name=x"), [blind]);
  assert.deepEqual(tried("?ssl=1", { PGSSLMODE: "disable" }), [blind]);
  assert.throws(() => tried("?ssl=true", { PGSSLMODE: "verify-full" }), UsageError, "the environment asks for more");
  assert.deepEqual(tried("", { PGSSLMODE: "require" }), [blind]);
  assert.deepEqual(tried("?sslmode=disable", { PGSSLMODE: "require" }), [false]);
  const [full] = tried(`?sslmode=verify-full&sslrootcert=${encodeURIComponent(root)}&ssl_min_protocol_version=TLSv1.3`);
  assert.deepEqual(full, { rejectUnauthorized: true, ca: Buffer.from("a certificate"), minVersion: "TLSv1.3" });
  const [ca] = tried(`?sslmode=require&sslrootcert=${root}`) as [Record<string, unknown>];
  assert.equal(ca["rejectUnauthorized"], true, "a certificate that is named is used");
  assert.equal((ca["checkServerIdentity"] as () => unknown)(), undefined);
  assert.deepEqual(tried("?sslrootcert=system"), [{ rejectUnauthorized: true }]);
  const [socket] = hosts("postgresql:///shop?host=/tmp&sslmode=verify-full", home);
  assert.deepEqual(encryptions(socket?.tls ?? {}), [false], "a socket has no TLS");
});

test("what is left of an address is the driver's, and options with TLS of their own are left alone", () => {
  const [one, two] = hosts("postgres://u@a:1,b/shop?sslmode=require&application_name=x%20y&channel_binding=prefer", home);
  assert.equal(one?.config.connectionString, "postgres://u@a:1/shop?application_name=x%20y");
  assert.equal(two?.config.connectionString, "postgres://u@b/shop?application_name=x%20y");
  const free = "user=u&port=7&options=-c%20x=y&statement_timeout=0&fallback_application_name=y";
  const idle = "connect_timeout=5&keepalives=1&tcp_user_timeout=0&load_balance_hosts=random&target_session_attrs=read-write&client_encoding=UTF8";
  const [other] = hosts(`postgresql://a/?${free}&${idle}&dbname=the%20shop&`, home);
  assert.equal(other?.config.connectionString, `postgresql://a/the%20shop?${free}`);
  assert.equal(hosts("postgresql://a?", home)[0]?.config.connectionString, "postgresql://a");
  const [given] = hosts({ connectionString: "postgresql://a/b?sslmode=require", user: "u" } as object, home);
  assert.deepEqual([given?.config, given?.tls], [{ user: "u", connectionString: "postgresql://a/b" }, { sslmode: "require" }]);
  assert.equal(hosts({ host: "a", ssl: true }, { PGSSLMODE: "verify-full" })[0]?.tls, undefined);
  assert.deepEqual(hosts({ host: "a" }, { PGSSLMODE: "require" })[0]?.tls, { sslmode: "require" });
});

test("what the driver cannot do, and what is no value, is refused with what to type", () => {
  for (const [query, words] of [
    ["?channel_binding=require", "use disable or prefer"],
    ["?sslcrldir=/etc", "leave it out"],
    ["?sslsni=0", "use 1"],
    ["?require_auth=scram-sha-256", "leave it out"],
    ["?requirepeer=postgres", "leave it out"],
    ["?gssencmode=require", "use disable or prefer"],
    ["?sslnegotiation=direct", "use postgres"],
    ["?ssl=verify-full", "use sslmode"],
    ["?ssl=false", "use sslmode"],
    ["?sslpassword=a=b", "%3D"],
    ["?sslmode=no-verify", "use one of disable, allow"],
    ["?sslmode", "sslmode has no value; write sslmode=..."],
    ...["sslmod", "SSLMODE", "ssl_mode"].map((name) => [`?${name}=verify-full`, `"${name}"; did you mean "sslmode"?`]),
    ["?application_name=a%00b", "it has a NUL"],
    ["?foo=bar", 'has an unknown parameter "foo"; leave it out'],
    ["?application_name=a&aplication_name=b", 'did you mean "application_name"?'],
    ["?word@h/shop", "has an unknown parameter; write ? in a password as %3F"],
    ["?port=word@h/shop", "invalid port; use a whole number from 1 to 65535"],
    ["?connect_timeout=x", 'invalid connect_timeout "x"; use a whole number'],
    ["?port=99999", "from 1 to 65535"],
    ["?target_session_attrs=foo", "use one of any, read-write"],
    ...["read-only", "standby", "prefer-standby"].map((value) => [
      `?target_session_attrs=${value}`, `${value} is more than a worker, which needs the primary, can do; use any or read-write or primary`,
    ]),
    ["?client_encoding=latin1", "use UTF8"],
    ...["service", "hostaddr", "passfile", "replication"].map((name) => [`?${name}=a`, `${name}=a is more than node-postgres can do`]),
    ["?sslmode=verify-full", "sslrootcert=system"],
    ["?sslmode=require&sslrootcert=system", "use verify-full"],
    ["?sslrootcert=/nowhere", "sslrootcert: ENOENT"],
    [`?sslmode=require&sslrootcert=${root}&sslcrl=/nowhere`, "sslcrl: ENOENT"],
  ] as [string, string][]) {
    const isRefused = (error: unknown): boolean => error instanceof UsageError && error.message.includes(words);
    assert.throws(() => tried(query), isRefused, query);
  }
  assert.throws(() => tried("", { PGCHANNELBINDING: "require" }), UsageError);
  assert.throws(() => tried("", { PGTARGETSESSIONATTRS: "standby" }), UsageError);
  const options = { connectionString: "postgresql://a/shop?sslmod=verify-full" };
  assert.throws(() => hosts(options as object, home), /did you mean "sslmode"/);
});
