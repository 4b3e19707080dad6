// A stand-in until the pages are there: pairs this tab, and says what it is then.

const hex = async (text) => {
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
};

const say = (text) => {
  document.getElementById("main").textContent = text;
};

const post = (path, body) =>
  fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

const pair = async () => {
  const secret = crypto.randomUUID() + crypto.randomUUID();
  const asked = await post("/v1/console/pair", { secretHash: await hex(secret) });
  if (!asked.ok) {
    return say((await asked.json()).error.message);
  }
  const { pairingId, digits } = await asked.json();
  say(`Type \`bascule console\` in a terminal and compare: ${digits.slice(0, 3)} ${digits.slice(3)}`);
  for (;;) {
    const claimed = await post("/v1/console/claim", { pairingId, secret, waitMs: 25000 });
    if (claimed.status === 204) {
      continue;
    }
    const answer = await claimed.json();
    if (!claimed.ok) {
      return say(answer.error.message);
    }
    sessionStorage.setItem("token", answer.token);
    return show();
  }
};

const show = async () => {
  const token = sessionStorage.getItem("token");
  const answer = token && (await fetch("/v1/console/session", { headers: { Authorization: `Bearer ${token}` } }));
  if (!answer || !answer.ok) {
    return pair();
  }
  const { grade, until } = await answer.json();
  return say(`This tab is ${grade} until ${until}.`);
};

show();
