// The entry point of the thread in which a worker's heartbeat runs.

import { parentPort, workerData } from "node:worker_threads";

import { Heartbeat, type HeartbeatOptions, type ToHeart } from "./heartbeat.js";

const port = parentPort;
if (port !== null) {
  const heartbeat = new Heartbeat(workerData as HeartbeatOptions, (message) => port.postMessage(message));
  port.on("message", (message: ToHeart) => heartbeat.receive(message));
  await heartbeat.run();
  port.close();
}
