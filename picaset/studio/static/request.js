// Requests to the server: JSON or an image, with readable errors, and repeated requests while the user drags something.

import { clearErrors } from "./notice.js";

const NO_RESPONSE = "The studio does not answer; is it still running in the terminal?";

async function fetchResult(path, options, read, { background = false, submitted = performance.now() } = {}) {
  let response;
  try {
    response = await fetch(path, options);
    if (response.ok) {
      const result = await read(response);
      if (!background) clearErrors(submitted);
      return result;
    }
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(NO_RESPONSE);
  }
  const body = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return {};
  });
  const error = new Error(body.message ?? `The studio answered with an error (${response.status}).`);
  error.status = response.status;
  throw error;
}

// A success removes error messages older than `submitted`, the time of the user's action that caused the request.
// `background`: no action caused it, so that it removes none.
export function fetchJson(path, { body, signal, background, submitted } = {}) {
  const options = body === undefined ? { signal } : {
    method: "POST", body, signal, headers: { "Content-Type": "application/json" },
  };
  return fetchResult(path, options, (response) => response.json(), { background, submitted });
}

export async function fetchImage(path, { signal, submitted } = {}) {
  return createImageBitmap(await fetchResult(path, { signal }, (response) => response.blob(), { submitted }));
}

// Sends one query at a time; of those submitted meanwhile, only the last is sent next. A running query is cancelled by a
// new one only after `patience` milliseconds, so that fast results are shown while the user drags. Between two queries
// it waits `pause` milliseconds, unless `resume` is called. `send` gets the query and what `fetchJson` needs to know of it.
export class LatestRequest {
  constructor({ send, show, fail, patience = 400, pause = 0 }) {
    Object.assign(this, { send, show, fail, patience, pause });
    this.next = null;
    this.busy = false;
    this.resume = () => {};
  }

  submit(query) {
    this.next = { query, submitted: performance.now() };
    if (!this.busy) this.work();
    else if (performance.now() - this.began > this.patience) this.controller.abort();
  }

  async work() {
    this.busy = true;
    while (this.next !== null) {
      const { query, submitted } = this.next;
      this.next = null;
      this.began = performance.now();
      this.controller = new AbortController();
      try {
        const result = await this.send(query, { signal: this.controller.signal, submitted });
        this.show(result, query);
      } catch (error) {
        if (error.name !== "AbortError" && error.status !== 409) this.fail(error, query);
      }
      if (this.pause) await this.wait();
    }
    this.busy = false;
  }

  wait() {
    return new Promise((resolve) => {
      this.resume = resolve;
      setTimeout(resolve, this.pause);
    });
  }

  cancel() {
    this.next = null;
    if (this.busy) this.controller.abort();
  }
}
