// The real program on the embedded store, with a data directory of its own.
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

export const ROOT = resolve(import.meta.dirname, "../..");
/// What tests leave behind: data directories while they run, and screenshots of what failed.
export const OUT = join(ROOT, "target/browser");
const START_MS = 300_000;
/// Of a demo, which makes its events first.
const MAKE_MS = 300_000;
const STOP_MS = 20_000;
const TOKEN = "the token of the operator";

export const PASSWORD = "correct horse battery";
export const ROLES = ["owner", "admin", "developer", "privacy_officer", "auditor"];

function program() {
  const path = process.env.SEALOG_BINARY ?? join(process.env.CARGO_TARGET_DIR ?? join(ROOT, "target"), "debug/sealog");
  if (!existsSync(path)) throw new Error(`${path} is not there: cargo build -p sealog`);
  return path;
}

/// Without the settings of whoever runs the tests.
function environment(env = {}) {
  return { ...Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("SEALOG_"))), ...env };
}

/// Starts the program and waits until it says where it listens. `out` has what it has printed by then.
async function start(args, { dir, env = {}, within = START_MS }) {
  const child = spawn(program(), args, { cwd: dir, env: environment(env), stdio: ["ignore", "pipe", "pipe"] });
  const log = [];
  let out = "";
  child.stdout.on("data", (bytes) => { out += bytes; });
  const ended = new Promise((done) => child.once("exit", done));
  const address = await new Promise((found, fail) => {
    const late = setTimeout(() => fail(new Error(`it does not listen: ${log.join("\n")}`)), within);
    createInterface({ input: child.stderr }).on("line", (line) => {
      log.push(line);
      const said = /^\{/.test(line) ? JSON.parse(line).fields : {};
      if (said.message === "listening") { clearTimeout(late); found(said.address); }
    });
    child.once("exit", (code) => { clearTimeout(late); fail(new Error(`it ended with ${code}: ${log.join("\n")}`)); });
  }).catch((error) => { child.kill("SIGKILL"); throw error; });
  const stop = async () => {
    const late = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
    child.kill("SIGTERM");
    await ended;
    clearTimeout(late);
  };
  return { address, url: `http://${address}`, log, stop, printed: () => out };
}

function newDirectory() {
  mkdirSync(OUT, { recursive: true });
  return mkdtempSync(join(OUT, "data-"));
}

/// `sealog serve` on an empty directory, or on one that was kept.
export async function serve({ dir = newDirectory(), settings = {}, keep = false } = {}) {
  const data = join(dir, "data");
  const env = { ...settings, SEALOG_OPERATOR_TOKEN: TOKEN, SEALOG_LIMITS_PER_IP_RPS: "0", SEALOG_LIMITS_TEST_RPS: "0", SEALOG_ALLOW_UNSAFE_STORAGE: "true" };
  const running = await start(["serve", "--listen", "127.0.0.1:0", "--data-dir", data], { dir, env });
  const firstRun = () => readFileSync(join(data, "first-run.txt"), "utf8");
  const stop = async () => { await running.stop(); if (!keep) rmSync(dir, { recursive: true, force: true }); };
  return new Server({ ...running, stop, firstRun, dir, data });
}

/// `sealog demo`, and whom it has printed.
export async function demo({ events = 50_000, dir = newDirectory(), keep = false } = {}) {
  const data = join(dir, "demo");
  const args = ["demo", "--json", "--listen", "127.0.0.1:0", "--data-dir", data, "--events", String(events)];
  const running = await start(args, { dir, within: MAKE_MS });
  const stop = async () => { await running.stop(); if (!keep) rmSync(dir, { recursive: true, force: true }); };
  return new Server({ ...running, stop, people: JSON.parse(running.printed()).people });
}

class Server {
  constructor(parts) { Object.assign(this, parts); }

  /// A call of the API: status and body.
  async api(key, path, body) {
    const response = await fetch(`${this.url}${path}`, {
      method: body === undefined ? "GET" : "POST",
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
      // A text goes out as it is: JSON.stringify would change it.
      body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
    });
    return { status: response.status, body: await response.json() };
  }

  async send(key, event) {
    const { status, body } = await this.api(key, "/v1/events", event);
    if (status !== 202) throw new Error(`${status} ${JSON.stringify(body)}`);
    return body.log_id;
  }

  /// A batch.
  async sendAll(key, events) {
    const { status, body } = await this.api(key, "/v1/events/batch", { events });
    if (status !== 202) throw new Error(`${status} ${JSON.stringify(body)}`);
  }

  /// Waits until every change is in its system chain.
  async drained() {
    for (;;) {
      const text = await (await fetch(`${this.url}/metrics`)).text();
      if (text.includes("\nsealog_system_records_pending 0\n")) return;
      await new Promise((next) => setTimeout(next, 20));
    }
  }

  /// A command on the host, and what it prints.
  command(...args) {
    const options = { cwd: this.dir, env: environment(), encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] };
    return execFileSync(program(), [...args, "--data-dir", this.data], options);
  }

  async operator(path, body) {
    const { status, body: made } = await this.api(TOKEN, `/operator/v1${path}`, body);
    if (status !== 201) throw new Error(`${path}: ${status} ${JSON.stringify(made)}`);
    return made;
  }

  /// An organisation with a project, a key for each mode, and somebody in each role.
  async organisation(name = "Organisation") {
    const { tenant_id: organisation } = await this.operator("/tenants", { name });
    const { project_id: project } = await this.operator(`/tenants/${organisation}/projects`, { name: "production", frameworks: ["soc2", "gdpr"] });
    const key = async (mode) => (await this.operator(`/projects/${project}/keys`, { name: `${mode} key`, mode })).key;
    const people = {};
    // Each password takes a core for a while, and there is more than one core.
    const made = await Promise.all(ROLES.map((role) => {
      people[role] = `${role}-${organisation.slice(0, 8)}@example.org`;
      return this.operator(`/tenants/${organisation}/users`, { email: people[role], password: PASSWORD, role });
    }));
    const person = made.at(-1).user_id;
    return { organisation, project, live: await key("live"), test: await key("test"), people, person };
  }
}
