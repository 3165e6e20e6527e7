package hosttest_test

import "railbed/internal/hosttest"

var _ = hosttest.MarkPackage(hosttest.AsNobody)
