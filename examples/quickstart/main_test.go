package main

import "os"

func Example() {
	for _, name := range []string{"BRELLIUM_ACCESS_TOKEN", "BRELLIUM_CLIENT_ID"} {
		_ = os.Unsetenv(name)
	}
	main()
	// Output:
	// No credentials in the environment: running on the embedded emulator.
	//
	// a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d  complete    ["Failed" "Missing Signature"]
	// 85dcd01f-fd93-481e-ae68-0ffe00000001  complete    []
	// eb5a9471-3feb-4e8d-ad4a-389f00000002  todo        []
	// fb08eee3-05b1-4183-8477-718200000003  processing  []
	// 8e546636-d15b-47d7-aa33-1b6800000004  complete    ["Failed" "Missing Signature"]
	//
	// Audit a1b2c3d4-e5f6-4a7b-8c9d-0e1f2a3b4c5d has 2 flags: ["Failed" "Missing Signature"]
	// An unknown id gives status 404, code NOT_FOUND.
	// Rate limit: 97 of 100 requests remain.
}
