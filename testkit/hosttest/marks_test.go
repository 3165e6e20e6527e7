package hosttest_test

import "railbed/testkit/hosttest"

var _ = hosttest.MarkPackage(hosttest.AsNobody)
