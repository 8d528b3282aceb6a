// Calls the emulator by the rules of the API guide's wrapper, as wrapper.py does.

const [base, token, audit, user] = process.argv.slice(2);
const sleep = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));
const now = () => performance.now() / 1000;
let tokens = 100;
let filled = now();

async function take() {
  for (;;) {
    tokens = Math.min(100, tokens + 5 * (now() - filled));
    filled = now();
    if (tokens >= 1) {
      tokens -= 1;
      return;
    }
    await sleep((1 - tokens) / 5);
  }
}

// send returns status, headers and text; status 0 is a lost connection.
async function send(method, path, body) {
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    const response = await fetch(base + path, { method, headers, body: JSON.stringify(body) });
    return { status: response.status, headers: response.headers, text: await response.text() };
  } catch {
    return { status: 0, headers: new Headers(), text: "" };
  }
}

async function call(method, path, { body, idempotent = false } = {}) {
  const started = now();
  for (let attempt = 0; attempt < 5; attempt++) {
    await take();
    const { status, headers, text } = await send(method, path, body);
    const isJSON = (headers.get("content-type") ?? "").includes("application/json");
    if (status >= 200 && status < 300) {
      if (headers.get("ratelimit-remaining") === "0") await sleep(0.2);
      return text === "" ? null : JSON.parse(text);
    }
    if (status === 403 && !isJSON) throw new Error("blocked");
    const unknown = status === 0 || status >= 500;
    if (status !== 429 && !(unknown && (method === "GET" || idempotent))) {
      const code = isJSON ? JSON.parse(text).error.code : "HTTP_ERROR";
      throw new Error(`${status} ${code} ${headers.get("x-request-id") ? "with" : "without"} a request id`);
    }
    let wait = Math.random() * Math.min(20, 0.5 * 2 ** attempt);
    if (status === 429) wait = Number(headers.get("retry-after") ?? headers.get("ratelimit-reset")) + Math.random() / 2;
    const left = 60 - (now() - started);
    if (left <= 0) break;
    await sleep(Math.min(wait, left));
  }
  throw new Error("exhausted");
}

const outcome = (...args) => call(...args).catch((error) => error.message);

const begun = now();
const found = await call("GET", `/v2/audits/${audit}`);
const waited = now() - begun;
console.log(JSON.stringify({
  audit: found.audit_id,
  waited,
  flags: (await call("PATCH", `/v2/audits/${audit}`, { body: { flags: ["Failed"] }, idempotent: true })).flags,
  created: await outcome("POST", "/v2/users", { body: { email: "casey@example.test" } }),
  blocked: await outcome("GET", "/v2/documents"),
  missing: await outcome("GET", "/v2/users/none"),
  deleted: await outcome("DELETE", `/v2/users/${user}`),
}));
