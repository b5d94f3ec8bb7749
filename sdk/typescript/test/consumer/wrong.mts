import { Sealog } from "sealog/node";
const sealog = new Sealog();
sealog.enqueue({ actor_id: "u-1" }); // wrong: no action
sealog.enqueue({ action: "user.login", actorId: "u-1" }); // wrong: no such field
sealog.enqueue({ action: "user.login", metadata: { at: new Date() } }); // wrong: not JSON
sealog.enqueue({ action: "user.login", metadata: { big: 1n } }); // wrong: not JSON
new Sealog({ onFull: "drop" }); // wrong: never drops
sealog.release("id", "maybe"); // wrong: send or drop
sealog.events({ actor: "u-1" }); // wrong: no such filter
export {};
