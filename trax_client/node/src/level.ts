// The access levels of the functions that this package calls, for the hint when a right is missing.

/** The functions below the level worker, by the lowest level that may call them. */
const levels = {
  reader: ["await_job", "await_jobs", "get_jobs", "read_graph", "read_needs", "read_steps"],
  producer: [
    "cancel", "change_job", "enqueue", "enqueue_graph", "enqueue_many", "enqueue_sql", "fork", "open_batch", "seal_batch",
    "send_signal",
  ],
};

/** Returns the lowest level that may call a function. */
export function levelOf(name: string): string {
  return Object.entries(levels).find(([, names]) => names.includes(name))?.[0] ?? "worker";
}

/** Returns the text that an admin types so that a role may run a statement, or undefined if that
 * calls no function of trax. */
export function hintToGrant(statement: string): string | undefined {
  const name = /\btrax\.(\w+)\(/.exec(statement)?.[1];
  if (name === undefined) return undefined;
  return (
    `As an admin of trax, type: select trax.grant_access('ROLE', '${levelOf(name)}'); this replaces another level of the ` +
    "role, and its limits to tasks and groups: name these again; to keep two levels, grant one of them to a role that it is " +
    "a member of"
  );
}
