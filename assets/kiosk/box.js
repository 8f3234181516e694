// Talking to the box: JSON, and the event stream of an answer. Knows nothing of the page.

import { langCode, word } from "./words.js";

export class BoxError extends Error {
  constructor(body, status) {
    super(body?.error?.message ?? "");
    this.nextStep = body?.error?.next_step ?? "";
    this.status = status;
  }
}

// What a person is told: the box's own sentences, or that it cannot be reached.
export function reason(error) {
  if (!(error instanceof BoxError) || !error.message) return word("lost");
  return [error.message, error.nextStep].filter(Boolean).join("\n");
}

const headers = () => ({ "accept-language": langCode() });

export async function get(path) {
  const reply = await fetch(path, { headers: headers(), cache: "no-store" });
  const body = await reply.json();
  if (!reply.ok) throw new BoxError(body, reply.status);
  return body;
}

// Ask, and call tell(name, event) for every event. Ends when the answer does; aborting `signal`
// ends the answer in the box too. Nothing is remembered: the box keeps no row of a visitor's turn.
export async function ask(question, client, signal, tell) {
  const reply = await fetch("/api/ask", {
    method: "POST",
    headers: { ...headers(), "content-type": "application/json" },
    body: JSON.stringify({ question, remember: false, client }),
    signal,
  });
  if (!reply.ok) throw new BoxError(await reply.json(), reply.status);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      const lines = frame.split("\n");
      const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (!name || !data) continue; // a comment that keeps the connection alive
      const event = JSON.parse(data);
      if (name === "error") throw new BoxError(event, 200);
      tell(name, event);
    }
  }
}
