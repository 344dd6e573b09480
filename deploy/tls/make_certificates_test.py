"""Tests make_certificates: which folders it changes, and what it refuses."""

import os
import subprocess
import tempfile
import unittest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make_certificates")


class MakeCertificatesTest(unittest.TestCase):
    def setUp(self):
        self.out = os.path.join(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")), "tls")
        self.run_program("--roles=scheduler,server/rack-1,operator")

    def run_program(self, *flags, out=None):
        """Returns the changed files and folders, relative to the --out."""
        out = out or self.out
        done = subprocess.run(
            [PROGRAM, "--out=" + out, "--job=j", *flags], check=True, capture_output=True, text=True
        )
        return sorted(line.split(":")[0][len(out) + 1 :] for line in done.stdout.splitlines())

    def assert_refused(self, message, *flags):
        done = subprocess.run(
            [PROGRAM, "--out=" + self.out, "--job=j", *flags], capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(message, done.stderr)

    def path(self, *parts):
        return os.path.join(self.out, *parts)

    def test_lists_go_to_every_folder_with_a_certificate(self):
        changed = self.run_program("--revoke=" + self.path("server/rack-1/cert.pem"))
        self.assertEqual(
            [os.path.dirname(file) for file in changed],
            ["operator/crl", "scheduler/crl", "server/rack-1/crl"],
        )
        for file in changed:
            self.assertTrue(os.path.exists(self.path(file)), file)
        self.assertFalse(os.path.exists(self.path("worker")))

    def test_token_keys_go_to_every_folder_that_needs_them(self):
        self.assertEqual(
            self.run_program("--token_key=team"),
            [
                "operator/tokens/team.key.pem",
                "scheduler/tokens/team.pub.pem",
                "server/rack-1/tokens/team.pub.pem",
            ],
        )
        self.assertEqual(
            self.run_program("--revoke_token=0123456789abcdef"),
            ["scheduler/tokens/revoked", "server/rack-1/tokens/revoked"],
        )

    def test_roles_limit_what_changes(self):
        changed = self.run_program(
            "--revoke=" + self.path("operator/cert.pem"), "--roles=scheduler"
        )
        self.assertEqual([os.path.dirname(file) for file in changed], ["scheduler/crl"])

    def test_certificate_of_another_authority_is_not_revoked(self):
        other = self.out + "-other"
        self.run_program("--roles=worker", out=other)
        self.assert_refused(
            "is not a certificate of the authority", f"--revoke={other}/worker/cert.pem"
        )
        self.assertFalse(os.path.exists(self.path("scheduler/crl")))

    def test_expired_certificate_can_be_revoked(self):
        self.run_program("--roles=worker", "--days=-1")
        self.assertEqual(len(self.run_program("--revoke=" + self.path("worker/cert.pem"))), 4)


if __name__ == "__main__":
    unittest.main()
