"""Ring 2: the real code on lockstep streams, in virtual time. Nothing here touches a socket or waits for a clock."""
