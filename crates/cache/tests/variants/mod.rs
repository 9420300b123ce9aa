//! Parameters that the tests of this crate run policies with.
#![allow(unreachable_pub)] // every test binary includes it

/// Variants that run beside every policy's defaults.
pub const VARIANTS: &[&str] = &[
    "clock,bits=2",
    "lfu,ghost=0",
    "lfu,ghost=0.5",
    "lfu,age=10",
    "lfu,age=2,ghost=1",
    "fbr,new=0.25,old=0.5",
    "fbr,new=0,old=1,cmax=2,amax=2,ghost=1",
    "fbr,new=0.5,old=0.1,cmax=1,amax=3,ghost=0",
    "lru-k,k=1,ghost=0",
    "lru-k,k=3,crp=2",
    "lru-k,k=2,crp=3,ghost=1",
    "lfru,lambda=0.5",
    "lfru,lambda=1,ghost=0",
    "lfru,lambda=0,ghost=0.5",
    "2q,kin=0.5,kout=2",
    "2q,kin=0.1,kout=0.1",
    "lirs,hirs=0.3",
    "lirs,hirs=0.5,nonres=0.5",
    "lirs,top=keep",
    "lirs,top=keep,hirs=0.4,nonres=1",
    "mq,m=1",
    "mq,m=3,lifetime=2,qout=2",
    "mq,m=4,lifetime=7,qout=0.5",
    "mq,qout=0",
    "s3-fifo,small=0.4,threshold=1",
    "s3-fifo,small=0.5,threshold=3",
    "w-tinylfu,window=0.4,protected=0.5",
    "w-tinylfu,window=1",
];
