import "./portable.mjs";
import { Sealog as Portable, SealogError } from "sealog";
import { Sealog, expressContext, fastifyContext, ValidationError } from "sealog/node";

if (!(Sealog.prototype instanceof Portable)) throw new Error("two copies of the client");
if (!(new ValidationError("x") instanceof SealogError)) throw new Error("two copies of the errors");
for (const middleware of [expressContext(), fastifyContext()]) if (typeof middleware !== "function") throw new Error();
