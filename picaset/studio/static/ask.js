// Asking the server: one way to get an answer or a readable error, and one to ask again and again while a hand moves.

import { settle } from "./notice.js";

const GONE = "The studio does not answer; is it still running in the terminal?";

// What it answers, or an error with its own words.
async function answerOf(path, options, read, { aside = false } = {}) {
  const began = performance.now();
  let response;
  try {
    response = await fetch(path, options);
    if (response.ok) {
      const found = await read(response);
      if (!aside) settle(began);
      return found;
    }
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(GONE);
  }
  const found = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return {};
  });
  const error = new Error(found.message ?? `The studio answered with an error (${response.status}).`);
  error.status = response.status;
  throw error;
}

// What is asked `aside`, by no gesture, ends no message.
export function ask(path, { body, signal, aside } = {}) {
  const options = body === undefined ? { signal } : {
    method: "POST", body, signal, headers: { "Content-Type": "application/json" },
  };
  return answerOf(path, options, (response) => response.json(), { aside });
}

// A picture, to be drawn.
export async function pictureOf(path, { signal } = {}) {
  return createImageBitmap(await answerOf(path, { signal }, (response) => response.blob()));
}

// One question at a time, always the newest next. A question that is answered soon may end, so that something is seen
// while a hand moves; one that takes longer than `patience` is cancelled by the next. Between two questions there are at
// least `pause` milliseconds, unless it is told to hurry.
export class Newest {
  constructor({ send, show, fail, patience = 400, pause = 0 }) {
    Object.assign(this, { send, show, fail, patience, pause });
    this.next = null;
    this.busy = false;
    this.hurry = () => {};
  }

  want(question) {
    this.next = question;
    if (!this.busy) this.work();
    else if (performance.now() - this.began > this.patience) this.controller.abort();
  }

  async work() {
    this.busy = true;
    while (this.next !== null) {
      const question = this.next;
      this.next = null;
      this.began = performance.now();
      this.controller = new AbortController();
      try {
        const answer = await this.send(question, this.controller.signal);
        this.show(answer, question);
      } catch (error) {
        if (error.name !== "AbortError" && error.status !== 409) this.fail(error, question);
      }
      if (this.pause) await this.rest();
    }
    this.busy = false;
  }

  rest() {
    return new Promise((resolve) => {
      this.hurry = resolve;
      setTimeout(resolve, this.pause);
    });
  }

  forget() {
    this.next = null;
    if (this.busy) this.controller.abort();
  }
}
