// @ts-check
/** The browser's side of passkeys: base64url in and out, and its refusals in words that say what to do. */

/** @param {string} text */
const fromBase64url = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));

/** @param {ArrayBuffer | null | undefined} buffer */
const toBase64url = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer ?? new ArrayBuffer(0))))
    .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

export const passkeysUsable = () => typeof PublicKeyCredential === "function" && window.isSecureContext;

/** A ceremony that did not happen, with what the person can do. */
class KeyRefused extends Error {
  /** @param {string} message @param {string} hint */
  constructor(message, hint) {
    super(message);
    this.name = "KeyRefused";
    this.hint = hint;
  }
}

/**
 * Asks for a touch. @param {{challenge: string, rpId?: string, allowCredentials: {id: string, transports?: string[]}[]}} asked
 * @param {AbortSignal} [stop]
 */
export async function assertion(asked, stop) {
  needPasskeys();
  try {
    const credential = /** @type {any} */ (await navigator.credentials.get({
      signal: stop,
      publicKey: {
        challenge: fromBase64url(asked.challenge),
        rpId: asked.rpId ?? location.hostname,
        allowCredentials: asked.allowCredentials.map(({ id, transports }) => ({
          type: "public-key", id: fromBase64url(id), ...(transports?.length ? { transports: /** @type {any} */ (transports) } : {}),
        })),
        // The person, not only a touch: a PIN, a finger, a face.
        userVerification: "required",
        timeout: 60_000,
      },
    }));
    const { response } = credential;
    return {
      credentialId: toBase64url(credential.rawId),
      authenticatorData: toBase64url(response.authenticatorData),
      clientDataJSON: toBase64url(response.clientDataJSON),
      signature: toBase64url(response.signature),
    };
  } catch (error) {
    throw inWords(error, stop);
  }
}

/** Makes a new key. @param {any} options PublicKeyCredentialCreationOptions with base64url @param {AbortSignal} [stop] */
export async function creation(options, stop) {
  needPasskeys();
  try {
    const credential = /** @type {any} */ (await navigator.credentials.create({
      signal: stop,
      publicKey: {
        ...options,
        challenge: fromBase64url(options.challenge),
        user: { ...options.user, id: fromBase64url(options.user.id) },
        excludeCredentials: (options.excludeCredentials ?? []).map((/** @type {any} */ item) => ({ ...item, type: "public-key", id: fromBase64url(item.id) })),
      },
    }));
    const { response } = credential;
    const publicKey = response.getPublicKey?.();
    if (!publicKey) {
      throw new KeyRefused("This browser does not give out the new key in a form that we can read.",
        "Use a current Chromium, Edge, Firefox or Safari, or another key.");
    }
    return {
      credentialId: toBase64url(credential.rawId),
      publicKey: toBase64url(publicKey),
      algorithm: response.getPublicKeyAlgorithm(),
      authenticatorData: toBase64url(response.getAuthenticatorData()),
      clientDataJSON: toBase64url(response.clientDataJSON),
      transports: response.getTransports?.() ?? [],
    };
  } catch (error) {
    throw inWords(error, stop);
  }
}

function needPasskeys() {
  if (!passkeysUsable()) {
    throw new KeyRefused("This browser has no passkeys.", "Use the passphrase, or a current browser at http://localhost.");
  }
}

const REFUSALS = /** @type {Record<string, [string, string]>} */ ({
  NotAllowedError: ["No key answered: it was cancelled, took too long, or the key cannot verify you.",
    "Try again. A USB key needs a PIN (set one in your browser's or system's security key settings). An extension such as Proton Pass, KeePassXC or Bitwarden may step in and refuse http://localhost: choose another key in its window. The passphrase always works."],
  InvalidStateError: ["This key is enrolled already.", "Use another key, or remove it from the list first."],
  SecurityError: ["The browser refuses passkeys at this address.", "Open the console at http://localhost, not at 127.0.0.1 or another name. The passphrase works in any case."],
  NotSupportedError: ["This key cannot do what is needed: verify you, and sign with ES256, RS256 or EdDSA.", "Use another key, or the passphrase."],
  ConstraintError: ["This key cannot verify its user.", "Set a PIN for it in your browser's or system's security key settings, then try again."],
  NotReadableError: ["The key could not be read.", "Unplug it, plug it in again, and retry."],
  UnknownError: ["The key or the browser failed without saying why.", "Try again, use another key, or the passphrase."],
});

/** @param {any} error @param {AbortSignal} [stop] @returns {Error} */
function inWords(error, stop) {
  if (stop?.aborted || error instanceof KeyRefused) return error;
  const [message, hint] = REFUSALS[error?.name] ?? [`The browser refused: ${error?.name ?? "unknown"}.`, "Use the passphrase, or another browser."];
  return new KeyRefused(message, hint);
}
