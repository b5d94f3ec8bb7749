import { Sealog } from "sealog/node";
import { Recorder } from "sealog/testing";
export const client: typeof Sealog = Sealog;
export const recorder = new Recorder();
