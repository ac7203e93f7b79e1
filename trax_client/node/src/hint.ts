// Hints of the server, which are written in SQL, in JavaScript. Other text stays as it is.

/** The functions that a Client has too, with the arguments that its methods take by position. */
const methods = new Map(Object.entries({
  enqueue: ["task", "input"],
  enqueue_sql: ["command"],
  open_batch: ["task", "input"],
  seal_batch: ["batch"],
  change_job: ["job_id"],
  cancel: ["job_id"],
  fork: ["job_id"],
  await_job: ["job_id", "timeout"],
  await_jobs: ["job_ids", "timeout"],
  spawn: ["job_id", "token", "step", "task", "input"],
}));

/** The functions that a handler calls as methods of its context, without job and token. */
const ofContext = new Set(["spawn"]);

const call = /(?:(?:select|call) )?\btrax\w*\.(\w+)\(((?:[^()]|\([^()]*\))*)\)(?! from\b)/g;
const named = /\b([a-z]\w*) => ((?:now\(\) \+ )?interval '[^']*'|now\(\)|array\[[^\]]*\]|'[^']*'(?:::jsonb)?)?/g;

/** Returns a hint with the options and methods of this package. */
export function inJavaScript(hint: string): string {
  let written = "";
  let end = 0;
  for (const { 0: text, 1: name = "", 2: given = "", index } of hint.matchAll(call)) {
    // Calls of other functions are typed in SQL.
    written += withOptions(hint.slice(end, index)) + (methodCall(name, given) ?? text);
    end = index + text.length;
  }
  return written + withOptions(hint.slice(end));
}

/** Returns the call of a method instead of that of a function; its named arguments are options. */
function methodCall(name: string, given: string): string | undefined {
  const positions = methods.get(name);
  if (positions === undefined) return undefined;
  const all = given.split(/, (?=(?:[^']*'[^']*')*[^']*$)/).filter((text) => text !== "" && text !== "null");
  const options = all.filter((text) => text.includes(" => "));
  const values = all.filter((text) => !text.includes(" => ")).map(valueOf);
  if (options.length > 0) values.push(...positions.slice(values.length).map(camelCase));
  if (options.length > 0) values.push(`{ ${withOptions(options.join(", "))} }`);
  return ofContext.has(name) ? `ctx.${name}(${values.slice(2).join(", ")})` : `${camelCase(name)}(${values.join(", ")})`;
}

const withOptions = (text: string): string =>
  text.replace(named, (_, name: string, value = "") => `${camelCase(name)}: ${valueOf(value)}`)
    .replace(/(?<=leave out )[a-z_]+/g, camelCase);

const camelCase = (name: string): string => name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());

const units: Record<string, string> = { s: "1000", min: "60_000", hour: "3_600_000", day: "86_400_000" };

function valueOf(value: string): string {
  if (value === "now()") return "new Date()";
  const [, count, unit = ""] = /^now\(\) \+ interval '(\d+) (\w+?)s?'$/.exec(value) ?? [];
  if (units[unit] !== undefined) return `new Date(Date.now() + ${count} * ${units[unit]})`;
  const [, json] = /^'([{[].*[\]}])'/.exec(value) ?? [];
  return json ?? value.replace(/^interval |^array(?=\[)/, "");
}
