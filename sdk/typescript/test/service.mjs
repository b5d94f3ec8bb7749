// A service in memory behind the `fetch` option: what the tests of the client need and no more.
export const KEY = `at_live_${"k".repeat(49)}`;
export const TEST_KEY = `at_test_${"k".repeat(49)}`;
export const URL_ = "http://sealog.test";

/** `script` holds functions or answers for the next requests; afterwards everything is stored. */
export function service(script = []) {
  const requests = [];
  const stored = [];
  const reply = (status, body, headers = {}) =>
    new Response(typeof body === "string" ? body : JSON.stringify(body), { status, headers });
  const store = (request) => {
    const events = request.path.endsWith("/batch") ? request.json.events : [request.json];
    const first = stored.length + 1;
    stored.push(...events);
    const ids = events.map((_, i) => `ID${first + i}`);
    const isBatch = request.path.endsWith("/batch");
    return reply(202, { ...(isBatch ? { log_ids: ids } : { log_id: ids[0] }), request_id: `req_${requests.length}` }, {
      "Sealog-Chain-Seq": isBatch ? `${first}-${stored.length}` : String(first), "Sealog-Hash": "ab".repeat(32),
    });
  };
  const fetch = async (url, init) => {
    const request = { path: new URL(url).pathname, ...init, json: init.body && JSON.parse(init.body) };
    requests.push(request);
    const next = script.shift();
    if (next === undefined) return store(request);
    return typeof next === "function" ? await next(request, store) : reply(next.status, next.body ?? "", next.headers);
  };
  return { fetch, requests, stored, reply, resources: () => stored.map(({ resource }) => resource) };
}

/** A promise that the test resolves. */
export function gate() {
  let open;
  const opened = new Promise((resolve) => { open = resolve; });
  return { open, opened };
}
