// What the page asks of the server. Everything lies beside the page, under its token.

const listeners = new Map();

/** Calls `hear(data)` for each event of this kind, from now on. */
export function on(kind, hear) {
  listeners.set(kind, hear);
}

/** Opens the feed; `hear("lost")` and `hear("there")` say how the line is. */
export function connect(hear) {
  const source = new EventSource("events");
  source.addEventListener("open", () => hear("there"));
  source.addEventListener("error", () => hear("lost"));
  for (const [kind, listener] of listeners) {
    source.addEventListener(kind, (event) => listener(JSON.parse(event.data)));
  }
}

/** Does something; resolves to null, or to the reason why it could not be done. */
export async function act(what, given = {}) {
  try {
    const answer = await fetch(`do/${what}`, { method: "POST", body: JSON.stringify(given) });
    if (answer.ok) return null;
    const body = await answer.json().catch(() => ({}));
    return body.error ?? `the playground answered ${answer.status}`;
  } catch {
    return "the playground does not answer; is it still running?";
  }
}

export async function get(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}
