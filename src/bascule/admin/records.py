"""What the house itself keeps, in the table `house`."""

import msgspec


class DaemonFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """One named fact: the person's hash, whether the last stop was clean."""

    text: str = ""
    at: int = 0


PERSON_KEY = "person"
CLEAN_STOP_KEY = "clean-stop"
# Which key the digests of this store were made with, as a hash of it.
DIGEST_KEY_KEY = "digest-key"
# The text of the policy that a person last accepted.
POLICY_KEY = "policy"
# Who stopped everything, until a person resumes: a `Halt` as JSON.
HALT_KEY = "stopped"
