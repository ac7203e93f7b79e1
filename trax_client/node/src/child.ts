/** A job that the job has spawned; `output` and `error` once it has ended. */
export interface Child {
  step: string;
  jobId: number;
  state: "queued" | "in_progress" | "completed" | "failed" | "cancelled";
  output: unknown;
  error: string | undefined;
}
