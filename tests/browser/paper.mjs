// A page as a printer gets it.
import { execFileSync } from "node:child_process";

/// The text of each sheet. Poppler reads it: what a browser says of its layout is not what it prints.
export async function printed(page) {
  const pdf = await page.pdf({ preferCSSPageSize: true, format: "A4" });
  const text = execFileSync("pdftotext", ["-layout", "-", "-"], { input: pdf, encoding: "utf8", maxBuffer: 1 << 26 });
  return text.split("\f").slice(0, -1).map((sheet) => sheet.replaceAll(/\s+/g, " "));
}
