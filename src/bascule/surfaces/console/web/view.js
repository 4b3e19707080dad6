// @ts-check
/**
 * The view layer: signals, elements, keyed lists. Nothing else touches the DOM's text or attributes.
 *
 * Agents write most of what the console shows, so this module is also the guard against it: strings become text
 * nodes, never markup; a link can only lead to `#/...`, a picture can only come from a `blob:`; an attribute that
 * could run a script or load a document is refused with a TypeError. CSP and Trusted Types stand behind it.
 *
 *   const count = signal(0);
 *   h("button", {onclick: () => count.value++, class: "primary"}, "Clicked ", () => count.value, " times")
 *
 * A function or a signal as a child or as an attribute's value is reactive: it is read again when a signal that it
 * read changes. Everything made inside a scope (a page, an effect, a row of a list) ends with that scope.
 */

/** @typedef {{readonly cleanups: (() => void)[]}} Scope */
/** @typedef {Set<Effect> & {producer?: Effect}} Readers those who follow a signal, and what computes it, if anything */
/** @typedef {{run: () => void, stop: () => void, sources: Set<Readers>, scope: Scope, ended: boolean}} Effect */
/** @template T @typedef {{value: T, peek: () => T}} Signal */
/** @typedef {Node | string | number | boolean | null | undefined} Plain */
/** @typedef {Plain | Signal<any> | (() => any) | any[]} Child */

/** An effect that changes what it reads runs again at once; more rounds than this are a loop, not a page. */
const MAX_RUNS_PER_FLUSH = 100_000;

/** @type {Effect | null} */
let observer = null;
/** @type {Scope | null} */
let owner = null;
/** @type {Set<Effect>} */
const queue = new Set();
let batchDepth = 0;
let flushing = false;

const SIGNAL = Symbol("signal");

/**
 * A value that effects follow. Assigning the same value (Object.is) changes nothing.
 * @template T @param {T} value @returns {Signal<T>}
 */
export function signal(value) {
  return make(value, new Set());
}

/** @template T @param {T} value @param {Readers} readers @returns {Signal<T>} */
function make(value, readers) {
  return /** @type {any} */ ({
    [SIGNAL]: true,
    get value() {
      if (readers.producer && queue.size) settle(readers.producer);
      if (observer) {
        readers.add(observer);
        observer.sources.add(readers);
      }
      return value;
    },
    set value(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const reader of readers) queue.add(reader);
      if (batchDepth === 0) flush();
    },
    /** The value, without following it. */
    peek() {
      if (readers.producer && queue.size) settle(readers.producer);
      return value;
    },
  });
}

/** A signal that follows what `compute` reads. @template T @param {() => T} compute @returns {Signal<T>} */
export function computed(compute) {
  /** @type {Readers} */
  const readers = new Set();
  const result = make(/** @type {any} */ (undefined), readers);
  readers.producer = follow(() => { result.value = compute(); });
  return result;
}

/** Brings a computed value up to date before it is read: nobody sees an old one beside a new one. @param {Effect} producer */
function settle(producer) {
  if (producer.ended) return;
  for (const source of producer.sources) if (source.producer) settle(source.producer);
  if (queue.delete(producer)) producer.run();
}

/**
 * Runs `body` now and again whenever a signal that it read changes; before each run, and at the end, what was made
 * inside it is cleaned up. @param {() => void} body @returns {() => void} stops it
 */
export function effect(body) {
  return follow(body).stop;
}

/** @param {() => void} body @returns {Effect} */
function follow(body) {
  /** @type {Effect} */
  const self = {
    sources: new Set(),
    scope: { cleanups: [] },
    ended: false,
    run() {
      release(self);
      const [outerObserver, outerOwner] = [observer, owner];
      [observer, owner] = [self, self.scope];
      batchDepth++;
      try {
        body();
      } finally {
        [observer, owner] = [outerObserver, outerOwner];
        batchDepth--;
      }
    },
    stop() {
      self.ended = true;
      queue.delete(self);
      release(self);
    },
  };
  owner?.cleanups.push(self.stop);
  self.run();
  if (batchDepth === 0) flush();
  return self;
}

/** @param {Effect} self */
function release(self) {
  for (const readers of self.sources) readers.delete(self);
  self.sources.clear();
  end(self.scope);
}

/** @param {Scope} scope */
function end(scope) {
  const [outerObserver, outerOwner] = [observer, owner];
  [observer, owner] = [null, null];
  for (const cleanup of scope.cleanups.splice(0).reverse()) {
    try {
      cleanup();
    } catch (error) {
      reportError(error);
    }
  }
  [observer, owner] = [outerObserver, outerOwner];
}

function flush() {
  if (flushing) return;
  flushing = true;
  let runs = 0;
  try {
    for (const next of queue) {
      queue.delete(next);
      if (next.ended) continue;
      if (++runs > MAX_RUNS_PER_FLUSH) {
        queue.clear();
        throw new Error("effects change each other without end: look for an effect that sets what it reads");
      }
      try {
        next.run();
      } catch (error) {
        reportError(error); // one broken widget must not stop the rest of the page
      }
    }
  } finally {
    flushing = false;
  }
}

/** Several changes, one update. @template T @param {() => T} body @returns {T} */
export function batch(body) {
  batchDepth++;
  try {
    return body();
  } finally {
    if (--batchDepth === 0) flush();
  }
}

/** Reads signals without following them. @template T @param {() => T} body @returns {T} */
export function untrack(body) {
  const outer = observer;
  observer = null;
  try {
    return body();
  } finally {
    observer = outer;
  }
}

/** Runs at the end of the page, effect or list row that is being made. @param {() => void} cleanup */
export function onCleanup(cleanup) {
  owner?.cleanups.push(cleanup);
}

/**
 * A scope of its own: what `body` makes lives until the returned `dispose`. @template T
 * @param {() => T} body @returns {{result: T, dispose: () => void}}
 */
export function root(body) {
  /** @type {Scope} */
  const scope = { cleanups: [] };
  const [outerObserver, outerOwner] = [observer, owner];
  [observer, owner] = [null, scope];
  try {
    return { result: body(), dispose: () => end(scope) };
  } finally {
    [observer, owner] = [outerObserver, outerOwner];
  }
}

/** @param {any} value @returns {value is Signal<any>} */
const isSignal = (value) => value !== null && typeof value === "object" && SIGNAL in value;

/** @param {any} value @returns {value is (() => any) | Signal<any>} */
const isReactive = (value) => typeof value === "function" || isSignal(value);

/** @param {any} source @returns {any} */
const read = (source) => (isSignal(source) ? source.value : typeof source === "function" ? source() : source);

// Elements ------------------------------------------------------------------------------------------------------

const SVG = "http://www.w3.org/2000/svg";
const REFUSED_TAGS = new Set(["script", "iframe", "frame", "object", "embed", "base", "link", "meta", "style", "template"]);
const REFUSED_ATTRIBUTES = new Set(["innerhtml", "outerhtml", "srcdoc", "formaction", "action", "xlink:href", "srcset", "ping"]);
/** Set as properties: the attribute is only their first value. */
const PROPERTIES = new Set(["value", "checked", "selected", "disabled", "hidden", "open", "indeterminate", "readOnly"]);

/**
 * An element. Props: `onclick: fn` and other events, `class`, `style: {width: "3px"}` (an object, never text),
 * `ref: (element) => void`, and any attribute; false, null and undefined leave an attribute out.
 * @param {string} tag @param {Record<string, any> | null} [props] @param {...Child} children
 * @returns {any} an HTMLElement; `any` so that a caller can use its own kind's properties
 */
export function h(tag, props, ...children) {
  if (REFUSED_TAGS.has(tag.toLowerCase())) throw new TypeError(`<${tag}> is not allowed in the console`);
  return fill(document.createElement(tag), props, children);
}

/** The same for SVG. @param {string} tag @param {Record<string, any> | null} [props] @param {...Child} children @returns {any} */
export function svg(tag, props, ...children) {
  if (/script|foreignobject|^use$|^a$|animate|set$/i.test(tag)) throw new TypeError(`<${tag}> is not allowed in a drawing`);
  return fill(document.createElementNS(SVG, tag), props, children);
}

/** @param {Element} element @param {Record<string, any> | null | undefined} props @param {Child[]} children */
function fill(element, props, children) {
  for (const child of children) append(element, child);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (name === "ref") value(element);
    else if (name.startsWith("on")) {
      if (typeof value === "function") element.addEventListener(name.slice(2), value);
      else if (value != null) throw new TypeError(`${name} takes a function`);
    } else if (isReactive(value)) effect(() => setProp(element, name, read(value)));
    else setProp(element, name, value);
  }
  return element;
}

/** @param {any} element @param {string} name @param {any} value */
function setProp(element, name, value) {
  const lower = name.toLowerCase();
  if (REFUSED_ATTRIBUTES.has(lower)) throw new TypeError(`${name} is not allowed in the console`);
  const absent = value === null || value === undefined || value === false;
  if (lower === "href" && !absent && !/^#\//.test(value)) throw new TypeError("a link of the console leads to #/...");
  if (lower === "src" && !absent && !/^blob:/.test(value)) throw new TypeError("a picture of the console is a blob:");
  if (name === "style") {
    if (typeof value === "string") throw new TypeError("style takes an object: a style text is refused by the CSP");
    for (const [key, item] of Object.entries(value ?? {})) {
      if (item === null || item === undefined) element.style.removeProperty(key);
      else element.style.setProperty(key, String(item));
    }
  } else if (PROPERTIES.has(name)) {
    if (element[name] !== value) element[name] = value ?? (name === "value" ? "" : false);
  } else if (absent) element.removeAttribute(name);
  else {
    const text = value === true ? (lower.startsWith("aria-") ? "true" : "") : String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

/** @param {Node} parent @param {Child} child */
export function append(parent, child) {
  if (isReactive(child)) parent.appendChild(region(child));
  else if (Array.isArray(child)) for (const item of child) append(parent, item);
  else if (child instanceof Node) parent.appendChild(child);
  else if (child !== null && child !== undefined && typeof child !== "boolean") parent.appendChild(document.createTextNode(String(child)));
}

/** Content that follows a function or signal. @param {any} source @returns {DocumentFragment} */
function region(source) {
  const [holder, start, finish] = bounds();
  effect(() => {
    const value = read(source);
    const old = start.nextSibling;
    const isText = typeof value === "string" || typeof value === "number";
    // One text stays one node: a selection inside it, and a screen reader's place, survive the update.
    if (isText && old !== finish && old?.nextSibling === finish && old instanceof Text) {
      if (old.data !== String(value)) old.data = String(value);
      return;
    }
    empty(start, finish);
    const fresh = document.createDocumentFragment();
    append(fresh, value);
    finish.before(fresh);
  });
  return holder;
}

/** @returns {[DocumentFragment, Comment, Comment]} */
function bounds() {
  const holder = document.createDocumentFragment();
  const [start, finish] = [document.createComment(""), document.createComment("")];
  holder.append(start, finish);
  return [holder, start, finish];
}

/** @param {Node} start @param {Node} finish */
function empty(start, finish) {
  while (start.nextSibling && start.nextSibling !== finish) start.nextSibling.remove();
}

/**
 * `make()` while the condition holds, else `otherwise()`. A condition that stays true keeps its nodes.
 * @param {(() => any) | Signal<any>} condition @param {() => Child} make @param {() => Child} [otherwise]
 * @returns {DocumentFragment}
 */
export function show(condition, make, otherwise) {
  const holds = computed(() => Boolean(read(condition)));
  return region(() => {
    const now = holds.value;
    return untrack(() => (now ? make() : otherwise?.()));
  });
}

/**
 * A keyed list. `render` runs once per key and gets a *signal* of its item, so that a row is updated in place
 * (`() => item.value.name`) and its node, focus and scroll position stay. Order follows the items; only rows that
 * changed place are moved.
 * @template T
 * @param {Signal<T[]> | (() => T[])} items @param {(item: T) => string | number}
 * keyOf @param {(item: Signal<T>) => Node} render @returns {DocumentFragment}
 */
export function list(items, keyOf, render) {
  const [holder, start, finish] = bounds();
  /** @type {Map<string | number, {item: Signal<T>, node: Node, dispose: () => void}>} */
  let rows = new Map();
  onCleanup(() => { for (const row of rows.values()) row.dispose(); });
  effect(() => {
    const wanted = /** @type {T[]} */ (read(items));
    untrack(() => {
      /** @type {typeof rows} */
      const next = new Map();
      for (const item of wanted) {
        const key = keyOf(item);
        if (next.has(key)) continue; // a key twice is the caller's mistake; the first one counts
        let row = rows.get(key);
        if (row) row.item.value = item;
        else {
          const current = signal(item);
          const { result, dispose } = root(() => render(current));
          if (result instanceof DocumentFragment) throw new TypeError("a row of a list is one element");
          row = { item: current, node: result, dispose };
        }
        next.set(key, row);
      }
      for (const [key, row] of rows) {
        if (next.has(key)) continue;
        row.dispose();
        /** @type {ChildNode} */ (row.node).remove();
      }
      /** @type {Node} */
      let place = start;
      for (const row of next.values()) {
        if (place.nextSibling !== row.node) /** @type {ChildNode} */ (place).after(row.node);
        place = row.node;
      }
      rows = next;
    });
  });
  return holder;
}
