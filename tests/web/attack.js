// What a hostile page can try. `begin` sends one shape of request to one host, once for each case; `running` is then
// what the page could read of each answer: text, or null for nothing.

// Streams do not end, and an answer without content gives no event: `release` ends the waiting for those.
let release;
let released;
const held = (promise) => Promise.race([promise, released]);

async function read(url, how) {
  const leaving = new AbortController();
  try {
    const answer = await fetch(url, { credentials: "include", signal: leaving.signal, ...how });
    if (answer.type === "opaque") return null;
    if (answer.body === null) return `${answer.status}`;
    // The first piece is enough, and all that an endless answer has.
    const piece = await held(answer.body.getReader().read());
    return `${answer.status} ${new TextDecoder().decode((piece && piece.value) || new Uint8Array())}`;
  } catch {
    return null;
  } finally {
    leaving.abort();
  }
}

function shown(frame) {
  try {
    const text = frame.contentDocument.body.textContent;
    return text === "" || frame.contentDocument.URL === "about:blank" ? null : text;
  } catch {
    return null;
  }
}

// Chromium takes several times as long for all frames at once. What does not load gives its turn away, too.
const FRAMES = 8;
const FRAME_TURN_MS = 300;
const turns = Array(FRAMES).fill(Promise.resolve());

async function framed(start) {
  const turn = turns.shift();
  let next;
  turns.push(new Promise((done) => { next = done; }));
  await turn;
  setTimeout(next, FRAME_TURN_MS);
  const text = await inFrame(start);
  next();
  return text;
}

async function inFrame(start) {
  const frame = document.createElement("iframe");
  frame.name = `frame-${Math.random()}`;
  // Nobody looks: what is not drawn costs less.
  frame.hidden = true;
  document.body.append(frame);
  // Set after the frame was put in: "load" of the empty page that it begins with has been said by then.
  const loaded = new Promise((done) => { frame.onload = () => done(null); });
  start(frame);
  await held(loaded);
  const text = shown(frame);
  frame.remove();
  return text;
}

const SHAPES = {
  json: (url, { verb, body }) => {
    const headers = { "Content-Type": "application/json", Accept: "application/json, text/event-stream" };
    return read(url, { method: verb, headers, body: verb === "GET" ? undefined : body });
  },

  nocors: (url, { verb, body }) =>
    read(url, verb === "GET" ? { mode: "no-cors" } : { mode: "no-cors", method: "POST", body }),

  form: (url, { verb, body }) =>
    framed((frame) => {
      const form = document.createElement("form");
      const field = (name, value) => {
        const input = document.createElement("input");
        Object.assign(input, { type: "hidden", name, value });
        form.append(input);
      };
      form.target = frame.name;
      form.method = verb === "GET" ? "get" : "post";
      form.action = url;
      if (verb === "GET") {
        new URL(url).searchParams.forEach((value, name) => field(name, value));
      } else if (body) {
        // `name=value` in plain text: a body with "=" somewhere in a string arrives as the JSON it is.
        form.enctype = "text/plain";
        const [name, ...value] = body.split("=");
        field(name, value.join("="));
      }
      document.body.append(form);
      form.submit();
      form.remove();
    }),

  img: (url) =>
    held(new Promise((done) => {
      const image = new Image();
      image.onload = () => done(`${image.naturalWidth} x ${image.naturalHeight}`);
      image.onerror = () => done(null);
      image.src = url;
    })),

  eventsource: (url) =>
    new Promise((done) => {
      const source = new EventSource(url, { withCredentials: true });
      const end = (text) => { source.close(); done(text); };
      source.onopen = () => end("open");
      source.onerror = () => end(null);
    }),

  websocket: (url) =>
    new Promise((done) => {
      const socket = new WebSocket(url.replace("http:", "ws:"));
      socket.onopen = () => { done("open"); socket.close(); };
      socket.onerror = () => done(null);
    }),

  iframe: (url) => framed((frame) => { frame.src = url; }),

  popup: async (url) => {
    // No name, no opener, no referrer: as little as a page can say about where the person comes from.
    window.open(url, "_blank", "noopener,noreferrer");
    return null;
  },

  beacon: async (url, { body }) => {
    const type = url.startsWith(`${location.origin}/`) ? "application/json" : "text/plain";
    navigator.sendBeacon(url, body ? new Blob([body], { type }) : undefined);
    return null;
  },
};

let running;
function begin(shape, host, cases) {
  released = new Promise((done) => { release = () => setTimeout(done, 200, null); });
  running = Promise.all(cases.map((each) => SHAPES[shape](`http://${host}:${location.port}${each.path}`, each)));
}
